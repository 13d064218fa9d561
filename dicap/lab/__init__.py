"""Grids of experiments, and their tables and figures beside the paper's."""
