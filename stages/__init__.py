"""Thin click commands, one file each; `stages.cli` collects them in `dicap-stage`."""
