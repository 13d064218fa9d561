"""Which loop trains a stage: the common one, or a method's own."""

from collections.abc import Callable

from torch import nn

from dicap.settings import Settings
from dicap.training.trainer import Trainer

Loop = Callable[[Trainer, nn.Module], None]


def loop_of(stage: str, settings: Settings) -> Loop:
    """The loop of `warmup`, `train` or `finetune`. Only its own module is imported (`dicap.provenance.dependencies.LOOPS`)."""
    match stage, settings.loop(stage):
        case "warmup", "convex":
            from dicap.training.loops.solved import warm_up as loop
        case "train", "convex":
            from dicap.training.loops.solved import train as loop
        case "train", "unfrozen":
            from dicap.training.loops.finetune_from_solved import train as loop
        case "warmup", "pclp":
            from dicap.training.loops.pclp import warm_up as loop
        case "warmup", _:
            from dicap.training.loops.warmup import warm_up as loop
        case "train", "drml":
            from dicap.training.loops.drml import train as loop
        case "train", _:
            from dicap.training.loops.main import train as loop
        case "finetune", _:
            from dicap.training.loops.finetune import finetune as loop
        case _:
            raise KeyError(stage)
    return loop


def first_refresh_of(settings: Settings) -> Callable[..., dict[str, float]]:
    """What records the pseudo-labels of the first epoch: (experiment, network, folder, source) -> shares of the labels."""
    if settings.solves("train"):
        from dicap.training.loops.solved import first_refresh
    elif settings.unfreezes:
        from dicap.training.loops.finetune_from_solved import first_refresh
    else:
        from dicap.training.loops.main import first_refresh
    return first_refresh
