"""Which loop trains a stage: the common one, or a method's own."""

from collections.abc import Callable

from torch import nn

from dicap.training.trainer import Trainer

Loop = Callable[[Trainer, nn.Module], None]


def loop_of(stage: str, method: str) -> Loop:
    """The loop of `warmup`, `train` or `finetune` for a method. Only its own module is imported."""
    match stage, method:
        case "warmup", "pclp":
            from dicap.training.pclp import warm_up as loop
        case "warmup", _:
            from dicap.training.warmup import warm_up as loop
        case "train", "drml":
            from dicap.training.drml import train as loop
        case "train", _:
            from dicap.training.main import train as loop
        case "finetune", _:
            from dicap.training.finetune import finetune as loop
        case _:
            raise KeyError(stage)
    return loop
