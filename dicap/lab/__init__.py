"""Grids of experiments, and their tables and figures beside those of the paper."""
