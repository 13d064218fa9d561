"""Commands for a frozen backbone."""
