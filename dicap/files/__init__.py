"""The files that stages write for each other."""
