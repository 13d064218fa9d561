"""The compared methods, a file each over one small base. `dicap.catalogue.METHODS` names them."""

import importlib

from dicap.catalogue import METHODS
from dicap.methods.base import Method
from dicap.settings import Settings


def build_method(settings: Settings, classes: int, annotated: float = 1.0) -> Method:
    """The method that `settings.method` names, for C classes; `annotated`: share of the training images that have labels."""
    facts = METHODS[settings.method]
    module = importlib.import_module(f"dicap.methods.{settings.method}")
    return getattr(module, facts.title.replace("-", ""))(settings, facts, classes, annotated)
