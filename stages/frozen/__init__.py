"""Commands on a frozen backbone."""
