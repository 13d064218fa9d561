"""What the machine can do and what training costs on it; changes no result."""
