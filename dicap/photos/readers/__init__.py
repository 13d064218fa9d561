"""Anybody's own images, in the formats that people have."""
