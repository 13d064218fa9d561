"""Photographs of one's own: readers of labels, prediction, pages, export, what to label next."""
