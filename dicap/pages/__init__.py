"""Pages for a browser: one file, no server, no network. How they are written safely, and what they look like."""
