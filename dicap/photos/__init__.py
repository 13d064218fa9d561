"""Your own photographs: readers of labels, prediction, pages, export, what to label next."""
