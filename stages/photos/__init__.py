"""Commands on photographs of one's own."""
