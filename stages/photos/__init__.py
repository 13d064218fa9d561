"""Commands on your own photographs."""
