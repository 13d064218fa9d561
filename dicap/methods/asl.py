"""ASL: labelled-only training with the asymmetric loss and a linear head (docs/methods.md 4.2). Its result is the warm-up's."""

from dicap.methods.base import Method


class ASL(Method):
    """The common frame as it is."""
