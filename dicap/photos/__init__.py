"""Using a trained model: prediction, export, what to label next."""
