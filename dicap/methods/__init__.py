"""The compared methods, a file each over one small base. `dicap.catalogue.METHODS` names them."""

import importlib

from dicap.catalogue import METHODS
from dicap.methods.base import Method
from dicap.settings import Settings


def build_method(settings: Settings, classes: int, share: float | None = None) -> Method:
    """The method that `settings.method` names, for C classes.

    Args:
        share: of the training images that is labelled, by which batches are composed; `ratio` where all could be.
    """
    facts = METHODS[settings.method]
    module = importlib.import_module(f"dicap.methods.{settings.method}")
    return getattr(module, facts.title.replace("-", ""))(settings, facts, classes, settings.ratio if share is None else share)
