"""Thin click commands, one file each; `stages.cli` gathers them as `dicap-stage`."""
