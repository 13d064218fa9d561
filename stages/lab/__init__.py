"""Commands on many experiments."""
