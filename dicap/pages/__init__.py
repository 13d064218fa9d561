"""Pages for a browser, one file each, no server, no network: how they are written safely, and what their templates share."""
