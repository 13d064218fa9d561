"""Grids of experiments, run here or on a cluster."""
