"""MLD: labelled-only training with the ML-Decoder head (docs/methods.md 4.3). Its result is the warm-up's."""

from dicap.methods.base import Method


class MLD(Method):
    """The asymmetric loss on strong views of all of D_l; everything else is the common frame."""
