"""What the layers above the core plug into it.

The core imports nothing of `dicap.frozen`, `dicap.photos` and `dicap.lab`, nor their commands. It asks here by name, and the
function is imported when it is asked for: without a layer, only what the layer brings is missing.
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
    """The function that is plugged in under a name of PLUGINS. Raises SettingsError where its layer is not installed."""
    module, function = PLUGINS[name].split(":")
    try:
        return getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise SettingsError(f"{name}: needs {module}, which is not part of this installation") from None
