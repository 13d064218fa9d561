"""The compared methods, one file each over one small base. `dicap.settings.methods` lists what is known about them."""

from importlib import import_module

from dicap.methods.base import Method
from dicap.plugins import plugged
from dicap.settings import Settings
from dicap.settings.methods import METHODS


def build_method(settings: Settings, classes: int, annotated: float = 1.0) -> Method:
    """The method that `settings.method` names, for C classes; `annotated`: share of the training images that have labels."""
    if settings.recommends:
        return plugged("recommended rule")(settings, classes, settings.ratio * annotated)
    name = settings.method  # of the module, the only one that is imported; the class has the method's title
    make = getattr(import_module(f"dicap.methods.{name}"), METHODS[name].title.replace("-", ""))
    return make(settings, classes, settings.ratio * annotated)
