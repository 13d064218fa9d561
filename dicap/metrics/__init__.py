"""What scores and answers are worth. Pure functions."""
