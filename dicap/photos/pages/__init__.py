"""Pages on photographs: what was predicted, what to label."""

from pathlib import Path

TEMPLATES = Path(__file__).with_name("templates")
