"""The settings of an experiment: what there is (`schema`), where values come from (`resolve`), what fits together (`checks`)."""

from dicap.settings.fields import Section
from dicap.settings.resolve import (
    Resolved,
    change_settings,
    changed,
    flatten,
    known_keys,
    load_settings,
    read_yaml,
    resolve,
    resolve_values,
)
from dicap.settings.schema import Own, Settings

__all__ = [
    "Own",
    "Resolved",
    "Section",
    "Settings",
    "change_settings",
    "changed",
    "flatten",
    "known_keys",
    "load_settings",
    "read_yaml",
    "resolve",
    "resolve_values",
]
