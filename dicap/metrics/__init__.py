"""Metrics of scores and answers. Pure functions."""
