"""Sentences that keep a number from being believed too much: how little it was measured on, or how little it means."""

from collections.abc import Iterator, Sequence
from typing import Any

FEW_LABELLED = 50  # labelled images below which little can be learnt
FEW_MEASURED = 30  # images below which a rate that was counted on them is a guess
FEW_TESTED = 50  # test images below which the score may be anything
FEW_POSITIVES = 5  # of a class in the test images
SMALL = 0.1  # share of the interval's half width below which mAP needs no correction


def of_chance(images: int | None) -> Iterator[str]:
    """About the chance to be right, which was measured on so many images; None: there is no such chance."""
    if images is not None and images < FEW_MEASURED:
        yield f"the chance to be right was measured on {_counted(images)} only: take it as a guess"


def headline(metrics: dict[str, Any]) -> tuple[float | None, bool]:
    """mAP in percent as it is to be shown, and whether it is corrected for what few test images add to it.

    None where the corrected value (docs/results.md) is off by more than half the interval's width: no one number says it then.
    mAP itself where there is no interval, or the correction is small beside it.
    """
    value, corrected, low, high = (metrics.get(key) for key in ("map", "map_corrected", "map_low", "map_high"))
    if value is None or corrected is None or low is None or high is None:
        return value, False
    if abs(value - corrected) <= SMALL * (high - low) / 2 + 0.005:
        return value, False
    return (corrected if low - 0.005 <= value <= high + 0.005 else None), True


def score_in_words(metrics: dict[str, Any]) -> str:
    """mAP in percent with its interval; corrected, or the interval alone, where few test images raise it."""
    if metrics.get("map_low") is None or metrics.get("map_high") is None:
        return f"{metrics['map']:.2f}"
    ends = f"{metrics['map_low']:.2f} to {metrics['map_high']:.2f}"
    about, is_corrected = headline(metrics)
    if not is_corrected:
        return f"{metrics['map']:.2f} (95 % interval {ends})"
    uncorrected = f"{metrics['map']:.2f} uncorrected for the few test images"
    return (
        f"{ends} (95 % interval; {uncorrected})" if about is None else f"about {about:.1f} (95 % interval {ends}; {uncorrected})"
    )


def of_results(metrics: dict[str, Any], labelled: int, measured: int | None, positives: Sequence[int]) -> Iterator[str]:
    """About the numbers of details.json.

    Args:
        metrics: with the keys of `dicap.metrics.operating_point.of_answers`, `n_test` and `f1_best`.
        labelled: images that were trained or measured on with labels; measured: of these kept for the chance, None: no chance.
        positives: test images of each class.
    """
    if labelled < FEW_LABELLED:
        yield f"learnt from {_counted(labelled)} with labels only: a few hundred are a good start"
    yield from of_chance(measured)
    if metrics["n_test"] < FEW_TESTED:
        yield f"scored on {_counted(metrics['n_test'])} only: on others the score may be far from this one"
    few = sum(0 < n < FEW_POSITIVES for n in positives)
    if few:
        yield f"{few} of {len(positives)} classes have fewer than {FEW_POSITIVES} positive test images: their AP is mostly chance"
    entries = metrics["yes"] + metrics["no"] + metrics["unsure"]
    if not metrics["yes"] and metrics["positives"]:
        yield (
            f"the model never says yes in {entries} entries, {metrics['positives']} of them positive; "
            f"always saying no is right in {metrics['constant_right']:.1%} of them"
        )
    elif metrics["yes_right"] is not None and metrics["yes_right"] <= metrics["positives"] / max(1, entries):
        yield "a yes is right no more often than by chance"
    if metrics.get("f1_best") is not None and metrics["positives"] and metrics["f1_best"] <= metrics["constant_f1"]:
        yield "no threshold chosen on labelled images finds the positives better than always saying yes"


def _counted(images: int) -> str:
    return f"{images} image{'' if images == 1 else 's'}"
