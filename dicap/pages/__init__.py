"""Pages for a browser: one file, no server, no network. Their templates, how they are written safely, and the two that
people work on: labelling and the gallery of predictions. What the report's pages say is in `dicap.report`."""
