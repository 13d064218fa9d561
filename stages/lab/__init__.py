"""Commands for many experiments."""
