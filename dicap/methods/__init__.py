"""The compared methods, one file per method, with a common base class. `dicap.settings.methods` lists facts about them."""

from importlib import import_module

from dicap.methods.base import Method
from dicap.plugins import plugged
from dicap.settings import Settings
from dicap.settings.methods import METHODS


def build_method(settings: Settings, classes: int, annotated: float = 1.0) -> Method:
    """The method named by `settings.method`, for C classes; `annotated`: share of the training images that have any labels."""
    if settings.recommends:
        return plugged("recommended rule")(settings, classes, settings.ratio * annotated)
    name = settings.method  # also the module's name, which alone is imported; the class is named by the method's title
    make = getattr(import_module(f"dicap.methods.{name}"), METHODS[name].title.replace("-", ""))
    return make(settings, classes, settings.ratio * annotated)
