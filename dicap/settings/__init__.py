"""The settings of an experiment: what there is (`schema`), where values come from (`resolve`), what fits together (`checks`)."""

from dicap.settings.resolve import (
    PUBLISHED,
    Resolved,
    flatten,
    known_keys,
    load_settings,
    parse_yaml,
    read_yaml,
    resolve,
    resolve_values,
)
from dicap.settings.schema import Calibration, Own, Section, Settings

__all__ = [
    "PUBLISHED",
    "Calibration",
    "Own",
    "Resolved",
    "Section",
    "Settings",
    "flatten",
    "known_keys",
    "load_settings",
    "parse_yaml",
    "read_yaml",
    "resolve",
    "resolve_values",
]
