"""What the result of a stage depends on."""
