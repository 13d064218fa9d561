"""The loops of the stages, one file each."""
