"""Which loop trains a stage. One table: the stages call the function, and what they depend on is its module."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from dicap.settings import Settings

# (stage, kind) -> module:function. The kind is "solved", "recommended", "unfrozen", or a method with a loop of its own; "" is any
# other.
# `warmup`, `train` and `finetune` are (Trainer, network) -> None; `pseudo_label` records the pseudo-labels of the first epoch.
LOOPS = {
    ("warmup", ""): "dicap.training.loops.warmup:warm_up",
    ("warmup", "pclp"): "dicap.training.loops.pclp:warm_up",
    ("warmup", "solved"): "dicap.frozen.loops.solved:warm_up",
    ("pseudo_label", ""): "dicap.training.loops.main:first_refresh",
    ("train", ""): "dicap.training.loops.main:train",
    ("train", "drml"): "dicap.training.loops.drml:train",
    ("train", "solved"): "dicap.frozen.loops.solved:train",
    ("train", "recommended"): "dicap.frozen.loops.recommended:train",
    ("train", "unfrozen"): "dicap.frozen.loops.recommended:train_whole",
    ("finetune", ""): "dicap.training.loops.finetune:finetune",
}


def loop_of(stage: str, settings: Settings) -> Callable[..., Any]:
    """The function that trains a stage. Only its own module is imported."""
    kind = settings.method
    if settings.solves(stage):
        kind = "recommended" if settings.recommends and stage == "train" else "solved"
    elif stage == "train" and settings.unfreezes:
        kind = "unfrozen"
    module, function = LOOPS.get((stage, kind), LOOPS[stage, ""]).split(":")
    return getattr(import_module(module), function)
