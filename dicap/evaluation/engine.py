"""Published models with another engine than torch under them (`dicap.features.engine`)."""

from dataclasses import replace

from dicap.features.engine import choose_engine, scoring_engine
from dicap.machine.runtime import Runtime
from dicap.models import SavedModel
from dicap.network import Network

PAYS_FROM = 2**25  # pixels in all, 2,048 images at 128 px: with fewer, exporting the backbone takes longer than it saves


def with_engine(model: SavedModel, runtime: Runtime, name: str, images: int) -> tuple[SavedModel, str]:
    """The model with its backbone computed by the engine that `--engine` names.

    Args:
        model: on the runtime's device.
        images: how many are going to be scored; for few of them `auto` is torch.

    Returns:
        The model, whose scores agree with torch's, and why `auto` did not take a faster engine (empty if
        it did, or if there was nothing to gain).

    Raises:
        SettingsError, DataError: see `dicap.features.engine.scoring_engine`.
    """
    size = model.settings.image_size
    chosen = choose_engine(name, runtime.device)
    if chosen == "torch" or (name == "auto" and images * size**2 < PAYS_FROM):
        return model, ""
    assert isinstance(model.network, Network)
    network, used = scoring_engine(model.network, runtime, name, image_size=size)
    return replace(model, network=network), used.note
