"""The published data sets and the bundled ones."""
