"""Warnings about numbers that are measured on few images, or that mean little."""

from collections.abc import Iterator, Sequence
from typing import Any

FEW_LABELLED = 50  # with fewer labelled images little can be learnt
FEW_MEASURED = 30  # a rate counted on fewer images is a guess
FEW_TESTED = 50  # on fewer test images the score is unreliable
FEW_POSITIVES = 5  # positive test images of a class; with fewer its AP is unreliable
SMALL = 0.1  # a correction below this share of the interval's half width is not applied


def of_chance(images: int | None) -> Iterator[str]:
    """A warning if the chance to be right was measured on few images; None: no chance is stated."""
    if images is not None and images < FEW_MEASURED:
        yield f"the chance to be right was measured on only {_counted(images)}: take it as a guess"


def headline(metrics: dict[str, Any]) -> tuple[float | None, bool]:
    """mAP in percent for display, and whether the bias of few test images (docs/results.md) matters.

    The uncorrected mAP, if there is no interval or the correction is small compared with the interval. Else the corrected mAP, or
    None if the uncorrected mAP is outside the interval: then no single number is shown.
    """
    value, corrected, low, high = (metrics.get(key) for key in ("map", "map_corrected", "map_low", "map_high"))
    if value is None or corrected is None or low is None or high is None:
        return value, False
    if abs(value - corrected) <= SMALL * (high - low) / 2 + 0.005:
        return value, False
    return (corrected if low - 0.005 <= value <= high + 0.005 else None), True


def score_in_words(metrics: dict[str, Any]) -> str:
    """mAP in percent with its interval; if few test images bias it, the corrected mAP or the interval alone."""
    if metrics.get("map_low") is None or metrics.get("map_high") is None:
        return f"{metrics['map']:.2f}"
    ends = f"{metrics['map_low']:.2f} to {metrics['map_high']:.2f}"
    value, is_biased = headline(metrics)
    if not is_biased:
        return f"{metrics['map']:.2f} (95 % interval {ends})"
    uncorrected = f"{metrics['map']:.2f} uncorrected for the few test images"
    return (
        f"{ends} (95 % interval; {uncorrected})" if value is None else f"about {value:.1f} (95 % interval {ends}; {uncorrected})"
    )


def of_results(metrics: dict[str, Any], labelled: int, measured: int | None, positives: Sequence[int]) -> Iterator[str]:
    """Warnings about the numbers of details.json.

    Args:
        metrics: has the keys of `dicap.metrics.operating_point.of_answers`, `n_test` and `f1_best`.
        labelled: all labelled images; measured: the labelled images that the chance is measured on, None: no chance is stated.
        positives: number of positive test images of each class.
    """
    if labelled < FEW_LABELLED:
        yield f"learnt from only {_counted(labelled)} with labels: a few hundred are a good start"
    yield from of_chance(measured)
    if metrics["n_test"] < FEW_TESTED:
        yield f"scored on only {_counted(metrics['n_test'])}: on other images the score may be very different"
    few = sum(0 < n < FEW_POSITIVES for n in positives)
    if few:
        yield f"{few} of {len(positives)} classes have fewer than {FEW_POSITIVES} positive test images: their AP is unreliable"
    entries = metrics["yes"] + metrics["no"] + metrics["unsure"]
    if not metrics["yes"] and metrics["positives"]:
        yield (
            f"the model never says yes in {entries} entries, although {metrics['positives']} entries are positive; "
            f"always saying no is right in {metrics['constant_right']:.1%} of the entries"
        )
    elif metrics["yes_right"] is not None and metrics["yes_right"] <= metrics["positives"] / max(1, entries):
        yield "a yes is right no more often than by chance"
    if metrics.get("f1_best") is not None and metrics["positives"] and metrics["f1_best"] <= metrics["constant_f1"]:
        yield "no threshold chosen on labelled images gives a better F1 than always saying yes"


def _counted(images: int) -> str:
    return f"{images} image{'' if images == 1 else 's'}"
