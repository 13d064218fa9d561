"""Functions of the layers above the core that the core calls.

The core does not import `dicap.frozen`, `dicap.photos`, `dicap.lab` or their commands. It looks up a function here by name, which
is imported at its first use. If a layer is not installed, only its functions are missing.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from dicap.errors import SettingsError

PLUGINS = {
    "reader of own labels": "dicap.photos.readers.read:read",
    "features of a frozen backbone": "dicap.frozen.inputs:open_features",
    "computing features": "stages.frozen.features:compute",
    "recommended rule": "dicap.frozen.loops.recommended:Recommended",
    "gallery of test images": "stages.photos.photographs:gallery",
}


def plugged(name: str) -> Callable[..., Any]:
    """The function under a name of PLUGINS. Raises SettingsError if its layer is not installed."""
    module, function = PLUGINS[name].split(":")
    try:
        return getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise SettingsError(f"{name}: needs {module}, which is not part of this installation") from None
