"""Sections 3.2 to 3.4 of the paper, and everything that learns P(y = 1 | p)."""
