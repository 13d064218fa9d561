"""The compared methods, one file each over one small base. `dicap.settings.methods` lists what is known about them."""

from importlib import import_module

from dicap.methods.base import Method
from dicap.settings import Settings
from dicap.settings.methods import METHODS


def method_class(name: str) -> type[Method]:
    """The class of `dicap/methods/<name>.py`, called by the method's title. Only this module is imported. Raises KeyError."""
    return getattr(import_module(f"dicap.methods.{name}"), METHODS[name].title.replace("-", ""))


def build_method(settings: Settings, classes: int, annotated: float = 1.0) -> Method:
    """The method that `settings.method` names, for C classes; `annotated`: share of the training images that have labels."""
    return method_class(settings.method)(settings, classes, settings.ratio * annotated)
