"""The training loops of the stages (Algorithm 1), their resumable state, and their records."""
