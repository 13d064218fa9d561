"""Thresholds that meet a precision or a recall with stated confidence, from images that no head had learnt.

*Recall.* How many of a class's positives lie at or above a threshold is binomial and falls with the threshold, so the k-th
highest positive score serves as soon as a binomial says that k of them would seldom be reached by too small a share (the order
statistic of Wilks, 1941). Nothing is tried twice, and nothing but exchangeable positives is assumed.

*Precision.* Learn-then-test (Angelopoulos, Bates, Candès, Jordan and Lei, 2021): for each rank k of the scores a hypothesis, "at
or above the k-th highest score the precision is below the target", and as p-value the chance that as many of k would be right
at the target. Ranks are tested from the highest score down, an order that labels do not change, from the first that could pass,
and the last before a failure is the answer: in such a fixed sequence no test pays for another. Proof that the precision is below
the target with at most the allowed error, for exchangeable images and a chance of the class that does not fall with the score:
given how many scores lie where the target holds, their labels are right with its share at the least place, and those further
down with no larger one. So the hits at the first false rank are at most binomial, and a later one is reached through it alone.

What is not proved is measured (benchmarks/promises.py): out-of-fold scores come of heads without a fold, and the head in use is
another, that has learnt from all; so scores are brought to its scale first (`dicap.frozen.crossfit.out_of_fold_at_rank`). The
promise is for each class and target by itself, and for images like the labelled ones. It is not one for those classes alone
that get a threshold: where hardly any labels would do, those that do were often lucky.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import bdtrc, betaincinv

from dicap.errors import did_you_mean

Target = tuple[str, float]  # ("precision" or "recall", what it has to be)


@dataclass(frozen=True)
class Ranking:
    """One class's known labelled images, ranked by the scores of heads that never saw them.

    Attributes:
        scores: (P,) of the positives, descending; negatives: (P,) how many negatives score at least that; images: all of them.
    """

    scores: np.ndarray
    negatives: np.ndarray
    images: int

    @property
    def ranks(self) -> np.ndarray:
        """(P,) images that score at least as much as each positive, of equal positives as if the later were lower."""
        return self.negatives + np.arange(1, len(self.scores) + 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists: nine digits tell apart all scores in single precision."""
        scores = [float(f"{score:.9g}") for score in self.scores]
        return {"scores": scores, "negatives": self.negatives.tolist(), "images": self.images}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Ranking":
        """The inverse of `to_dict`."""
        return Ranking(np.array(values["scores"], float), np.array(values["negatives"], int), int(values["images"]))


@dataclass(frozen=True)
class Threshold:
    """Where a target is met: a yes is a score of at least `at`. None: labels cannot promise it, and `why` says what they lack."""

    at: float | None
    why: str = ""


def rankings(scores: np.ndarray, labels: np.ndarray) -> tuple[Ranking, ...]:
    """Of every class, from scores and labels (n, C); labels below 0 or NaN are unknown."""
    found = []
    for score, label in zip(np.asarray(scores, np.float64).T, np.asarray(labels).T, strict=True):
        positive, negative = -np.sort(-score[label > 0]), np.sort(score[label == 0])
        above = len(negative) - np.searchsorted(negative, positive, side="left")
        found.append(Ranking(positive, above, len(positive) + len(negative)))
    return tuple(found)


def threshold(ranking: Ranking, target: Target, confidence: float) -> Threshold:
    """A class's threshold that meets the target with this confidence: as low as can be for a precision, as high for a recall."""
    if not len(ranking.scores):
        return Threshold(None, "none of its labelled images shows it")
    kind, value = target
    return (_for_precision if kind == "precision" else _for_recall)(ranking, value, 1 - confidence)


def _for_recall(ranking: Ranking, target: float, error: float) -> Threshold:
    positives = len(ranking.scores)
    needed = trials(target, error)
    if positives < needed:
        images = ceil(needed * ranking.images / positives)
        return Threshold(None, f"needs {needed} labelled images that show it, here {positives}: about {images} labelled in all")
    kept = np.arange(1, positives + 1)
    seldom = at_least(kept, positives, target) <= error  # (P,): with the first k a smaller recall is improbable
    return Threshold(float(ranking.scores[int(np.argmax(seldom))]))


def _for_precision(ranking: Ranking, target: float, error: float) -> Threshold:
    # further down than the last of these the target cannot be met
    ranks = np.arange(trials(target, error), min(ranking.images, int(len(ranking.scores) / target)) + 1)
    hits = np.searchsorted(ranking.ranks, ranks, side="right")
    passed = np.logical_and.accumulate(at_least(hits, ranks, target) <= error)
    if passed.any():
        return Threshold(float(ranking.scores[hits[passed][-1] - 1]))
    return Threshold(None, _missing(ranking, target, error))


def at_least(hits: np.ndarray, trials: np.ndarray | int, chance: float) -> np.ndarray:
    """Chance of that many hits or more in so many independent trials."""
    return bdtrc(hits - 1.0, np.asarray(trials, np.int64), chance)


def trials(target: float, error: float) -> int:
    """How many have to be right, all of them, before a share of at least the target can be believed."""
    return ceil(log(error) / log(target) - 1e-9)


def _missing(ranking: Ranking, target: float, error: float) -> str:
    """What a precision is short of: labelled images, or a better model.

    At the rank whose precision is surest the same share is taken to be right among more images.
    """
    hits, ranks = np.arange(1, len(ranking.scores) + 1), ranking.ranks
    best = int(np.argmax(betaincinv(hits, ranks - hits + 1, error)))  # the highest lower end (Clopper and Pearson, 1934)
    share = hits[best] / ranks[best]
    seen = f"of its {ranks[best]} highest scores {hits[best]} are right"
    first = trials(target, error)
    if at_least(hits[best], ranks[best], target) <= error:
        right = int(np.searchsorted(ranks, first, side="right"))
        return f"{seen}, but of its {first} highest {right}, which all have to be: more labels may do, how many cannot be said"
    asked = np.floor(max(first, ranks[best] + 1) * 2 ** np.arange(0, 12, 0.1))
    enough = at_least(np.floor(share * asked), asked, target) <= error
    if share <= target or not enough.any():
        return f"{seen}: more labels alone do not show it, the model has to get better"
    images = ceil(asked[int(np.argmax(enough))] * ranking.images / ranks[best])
    return f"{seen}; needs at least about {images} labelled images, here {ranking.images}"


def targets_of(classes: Sequence[Any], **asked: float | Mapping[Any, float] | None) -> list[Target | None]:
    """What is asked of each class, None where nothing is.

    Args:
        asked: `precision` and `recall`: one number for all classes, or {class: number}.

    Raises:
        ValueError: a number outside (0, 1), a class that is not there, or both for one class.
    """
    found: dict[Any, Target] = {}
    for kind, values in asked.items():
        if values is None:
            continue
        for name, value in (values if isinstance(values, Mapping) else dict.fromkeys(classes, values)).items():
            if name not in classes:
                raise ValueError(f"{kind}: no class is called {name!r}{did_you_mean(name, map(str, classes))}")
            check_share(kind, value)
            if name in found:
                raise ValueError(f"class {name}: both precision and recall are given; a threshold can be chosen for one of them")
            found[name] = (kind, float(value))
    return [found.get(name) for name in classes]


def check_share(name: str, value: Any) -> None:
    """Raise ValueError unless the value is a number between 0 and 1."""
    if not (isinstance(value, Real) and 0 < float(value) < 1):
        raise ValueError(f"{name}: found {value!r}, expected a number between 0 and 1, as 0.9")
