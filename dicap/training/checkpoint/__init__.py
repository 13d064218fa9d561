"""What survives a kill, and how it is written."""
