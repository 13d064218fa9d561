"""Correctness rates, thresholds and pseudo-labels (the paper's sections 3.2 to 3.4), and all estimates of P(y = 1 | score)."""
