"""Scores of published models on the test images, and the card that says what a model is worth."""
