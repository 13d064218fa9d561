"""DiCaP: distribution-calibrated pseudo-labelling for semi-supervised multi-label learning."""

__version__ = "0.1.0"
