"""The user's own photographs: readers of labels, prediction, pages, export, and the choice of images to label."""
