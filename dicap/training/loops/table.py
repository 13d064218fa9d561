"""Which loop trains a stage. The stages call the function in this table, and their result depends on its module."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from dicap.settings import Settings

# (stage, kind) -> module:function. The kind is "solved", "recommended", "unfrozen", or the name of a method with its own loop; ""
# is the default.
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
    """The function that trains a stage; no other loop's module is imported."""
    kind = settings.method
    if settings.solves(stage):
        kind = "recommended" if settings.recommends and stage == "train" else "solved"
    elif stage == "train" and settings.unfreezes:
        kind = "unfrozen"
    module, function = LOOPS.get((stage, kind), LOOPS[stage, ""]).split(":")
    return getattr(import_module(module), function)
