"""How many labelled images a step holds: the published numbers grow with the labelled share of the data (docs/methods.md 2.8)."""

from typing import Literal


def warmup_batch(size: int | Literal["auto"], share: float) -> int:
    """Labelled images of a warm-up step; auto: 16/32/48/64 at 5/10/15/20 % labelled.

    Args:
        size: warmup.batch_size.
        share: labelled images over all training images.
    """
    return min(max(round(320 * share), 4), 64) if size == "auto" else size


def pclp_batch(
    size: int | Literal["auto"], labelled: int | Literal["auto"], train_size: int, train_labelled: int | Literal["auto"]
) -> tuple[int, int]:
    """Images of a step of PCLP's main stage, and the labelled ones of them; auto: a quarter at every ratio (docs/methods.md 4.7).

    Args:
        size, labelled: pclp.batch_size and pclp.batch_labelled; auto: as the next two.
        train_size, train_labelled: train.batch_size and train.batch_labelled.
    """
    size = train_size if size == "auto" else size
    labelled = train_labelled if labelled == "auto" else labelled
    return size, max(1, size // 4) if labelled == "auto" else labelled


def labelled_batch(size: int | Literal["auto"], share: float, batch: int) -> int:
    """Labelled images of a main step; auto: 4/8/12/16 of 64 at 5/10/15/20 %, never more than half.

    Args:
        size: train.batch_labelled.
        share: labelled images over all training images.
        batch: train.batch_size, labelled and unlabelled images of a step.
    """
    return min(max(round(1.25 * share * batch), 1), batch // 2) if size == "auto" else size
