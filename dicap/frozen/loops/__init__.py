"""Loops of the stages where a head on a frozen backbone is solved."""
