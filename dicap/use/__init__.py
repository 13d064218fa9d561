"""A trained model at work: prediction, export, what to label next."""
