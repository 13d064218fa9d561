"""The settings of an experiment: their schema (`schema`), reading and merging (`resolve`), contradictions (`checks`)."""

from dicap.settings.fields import Section as Section
from dicap.settings.resolve import Resolved as Resolved
from dicap.settings.resolve import change_settings as change_settings
from dicap.settings.resolve import changed as changed
from dicap.settings.resolve import flatten as flatten
from dicap.settings.resolve import known_keys as known_keys
from dicap.settings.resolve import load_settings as load_settings
from dicap.settings.resolve import read_yaml as read_yaml
from dicap.settings.resolve import resolve as resolve
from dicap.settings.resolve import resolve_values as resolve_values
from dicap.settings.schema import Own as Own
from dicap.settings.schema import Settings as Settings
