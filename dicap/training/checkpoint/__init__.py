"""Checkpoints: the state that survives a kill."""
