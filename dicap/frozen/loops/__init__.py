"""Loops of the stages that solve a head on a frozen backbone."""
