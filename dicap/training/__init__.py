"""The loop of Algorithm 1, its resumable state, and evaluation."""
