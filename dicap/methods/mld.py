"""MLD: labelled-only training with the ML-Decoder head (docs/methods.md 4.3). The warm-up is the result."""

from dicap.methods.base import Method


class MLD(Method):
    """The asymmetric loss on strong views of all of D_l, as in the base class; the head is a setting."""
