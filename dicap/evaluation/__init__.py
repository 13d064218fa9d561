"""Evaluation of published models on the test images, and their model cards."""
