"""Which loop trains a stage. One table: the stages call the function, and what they depend on is its module."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from dicap.settings import Settings

# (stage, kind) -> module:function. The kind is "solved", "recommended", "unfrozen", or a method with a loop of its own; "" is any
# other.
# `warmup`, `train` and `finetune` are (Trainer, network) -> None; `pseudo_label` records the pseudo-labels of the first epoch.
LOOPS: dict[tuple[str, str], str | None] = {
    ("warmup", ""): "dicap.training.loops.warmup:warm_up",
    ("warmup", "pclp"): "dicap.training.loops.pclp:warm_up",
    ("warmup", "solved"): "dicap.frozen.loops.solved:warm_up",
    ("pseudo_label", ""): "dicap.training.loops.main:first_refresh",
    ("pseudo_label", "solved"): None,  # `train` takes no longer, and records them
    ("pseudo_label", "recommended"): None,
    ("pseudo_label", "unfrozen"): None,
    ("train", ""): "dicap.training.loops.main:train",
    ("train", "drml"): "dicap.training.loops.drml:train",
    ("train", "solved"): "dicap.frozen.loops.solved:train",
    ("train", "recommended"): "dicap.frozen.loops.recommended:train",
    ("train", "unfrozen"): "dicap.frozen.loops.recommended:train_whole",
    ("finetune", ""): "dicap.training.loops.finetune:finetune",
    ("finetune", "recommended"): None,  # no label was kept from training
}


def named(stage: str, settings: Settings) -> str | None:
    """module:function of a stage's loop; None for a stage that trains nothing."""
    kind = settings.method
    if settings.solves(stage) or (stage == "finetune" and settings.recommends):
        kind = "recommended" if settings.recommends and stage != "warmup" else "solved"
    elif stage in ("train", "pseudo_label") and settings.unfreezes:
        kind = "unfrozen"
    return LOOPS.get((stage, kind), LOOPS.get((stage, "")))


def loop_of(stage: str, settings: Settings) -> Callable[..., Any]:
    """The function that trains a stage. Only its own module is imported. Raises KeyError for a stage that trains nothing."""
    name = named(stage, settings)
    if name is None:
        raise KeyError(stage)
    module, function = name.split(":")
    return getattr(import_module(module), function)
