"""ASL: labelled-only training with the asymmetric loss and a linear head (docs/methods.md 4.2). The warm-up is the result."""

from dicap.methods.base import Method


class ASL(Method):
    """The base class without changes."""
