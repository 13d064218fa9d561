"""Cross-fitting: a student on labels and pseudo-labels, and beside it one for each fold that no label of its fold has reached.

Teachers are solved on the labelled rows and score all rows, a rule makes pseudo-labels of the scores, students are solved on
both. Nothing that reaches the student of fold k depends on a label of fold k, but for two numbers that all heads share, where
they were chosen on all labels: the weight of the loss (`dicap.frozen.loss_weight`) and the student's share
(`dicap.frozen.choice`). So its scores of that fold measure how often a confidence is right. What it learns from has out-of-fold
scores itself, hence a teacher is solved without each fold and without each pair of folds.

Letters: n rows, of which the first n_l are labelled; D features, C classes, K folds, H heads; y label: 1, 0, or unknown, which is
any number below 0 or NaN. An *open* entry is one without a label: of an unlabelled row, or unknown. Classes do not share weights,
so no head has learnt from an open entry, and its score there is out of sample as it stands.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dicap.calibration.quota import quota_of
from dicap.frozen.choice import PART, Choice, safe_mixture
from dicap.frozen.folds import fold_weights, n_folds, out_of_fold_scores
from dicap.frozen.logistic import class_shares, rates_of_classes
from dicap.frozen.neighbours import averaged, in_metric_of_views
from dicap.frozen.solver import PrincipalAxes, Solution, rotate, solve


class Fit(NamedTuple):
    """What `crossfit` finds."""

    heads: Solution  # the fold students and, last, the student of all labels, as far as they were taken
    choice: Choice | None = None  # how much of them was taken, where that was chosen

    def out_of_fold(self, rows: NDArray, fold: NDArray) -> tuple[NDArray, NDArray]:
        """Confidences (n_l, C) of the labelled rows, the first of rows (n, D), each by the student of its own fold (n_l,); and
        `out_of_fold_at_rank`.
        """
        n = len(fold)
        others = rows[n :: -(-(len(rows) - n) // MOST_OTHERS) or 1]
        heads = self.heads.w, self.heads.b
        return out_of_fold(*heads, rows[:n], fold), out_of_fold_at_rank(*heads, rows[:n], fold, others)


class Pseudo(NamedTuple):
    """Pseudo-labels for one student: of the n - n_l unlabelled rows, or of all n rows, where labelled rows have open entries."""

    target: NDArray  # (m, C) float32 in [0, 1]
    weight: NDArray  # (m, C) float32: 0 where there is no pseudo-label


# Of all heads. Against 1e-3 a fit is a fifth quicker, and mAP changed by 0.02 in the mean and 0.07 at most on photographs; on
# tables of a few dozen labelled rows by 0.35 at most, where another share of the student was taken.
TOLERANCE = 1e-2
MOST_OTHERS = 2000  # rows by which ranks are compared: more would move no threshold

# From scores (n, C), labels (n_l, C) that the student may know, the others unknown, and its fold (None: the student of all).
Rule = Callable[[NDArray, NDArray, int | None], Pseudo]


def crossfit(
    rows: NDArray,
    y: NDArray,
    fold: NDArray,
    rule: Rule,
    *,
    loss_weight: float,
    pseudo_weight: float | Literal["auto"],
    neighbours: int = 0,
    views: NDArray | None = None,
) -> Fit:
    """The fold students and, last, the student of all labels; with `pseudo_weight: auto` how much of them is used.

    Args:
        rows: (n, D) float32, labelled rows first; y: (n_l, C) labels; fold: (n_l,), -1 without cross-fitting.
        rule: makes the pseudo-labels of each student.
        loss_weight: of all heads, as in `dicap.frozen.solver.solve`.
        pseudo_weight: of a pseudo-labelled entry of weight 1 beside a labelled one; `auto`: PART, and the heads are those of
            `safe_mixture`. Without cross-fitting there is nothing to choose by, and they are the students.
        neighbours: nearest rows with which a teacher's rows are averaged; 0: none.
        views: (m, D) differences between some of the rows and other views of them, for `in_metric_of_views`.
    """
    rotated = rotate(rows)
    near = rotated if views is None or not neighbours else in_metric_of_views(rows, views)
    teachers = solve_teachers(rows, y, fold, loss_weight=loss_weight, neighbours=neighbours, near=near)
    pseudo = pseudo_labels_per_fold(teachers, y, rule)
    weight = PART if pseudo_weight == "auto" else pseudo_weight
    students = solve_students(rotated, y, fold, pseudo, loss_weight=loss_weight, pseudo_weight=weight)
    if pseudo_weight != "auto" or not n_folds(fold):
        return Fit(students)
    labelled = rows[: len(y)]
    own = solve(labelled, y, weight=_student_weights(fold) * (y >= 0), loss_weight=loss_weight, tolerance=TOLERANCE)
    return Fit(*safe_mixture(own, students, labelled, y, fold))


def pseudo_labels_per_fold(teachers: "Teachers", y: NDArray, rule: Rule) -> list[Pseudo]:
    """What each fold's student and, last, the student of all labels learns from."""
    pseudo = []
    for k in range(n_folds(teachers.fold)):
        known = np.where((teachers.fold == k)[:, None], np.float32(-1), y)  # no label of its own fold
        pseudo.append(rule(teachers.scores((k,)), known, k))
    return [*pseudo, rule(teachers.scores(), y, None)]


# -- teachers


@dataclass(frozen=True)
class Teachers:
    """Heads on the labelled rows, and what they say of every row.

    Attributes:
        fold: (n_l,) fold of each labelled row; -1 without cross-fitting.
        open: (n, C) bool: entries without a label.
        without: the folds each head leaves out, ascending: none, each one, each pair.
        logits: (H, n, C).
    """

    fold: NDArray
    open: NDArray
    without: list[tuple[int, ...]]
    logits: NDArray

    def scores(self, without: tuple[int, ...] = ()) -> NDArray:
        """The scores (n, C) float32 in [0, 1] that the student without these folds may learn from.

        Open entries are scored by the head without them. A labelled entry of fold j is scored by the head that leaves out j
        besides: an out-of-fold score. Head j's scores are brought to the scale of the first by their mean and deviation over
        the open entries, class by class.
        """
        own = self.logits[self.without.index(without)]
        scores = own.copy()
        mean, deviation = self._moments(own)
        for j in set(range(n_folds(self.fold))) - set(without):
            other = self.logits[self.without.index(tuple(sorted((*without, j))))]
            other_mean, other_deviation = self._moments(other)
            ratio = deviation / np.maximum(other_deviation, 1e-6)
            here = np.flatnonzero(self.fold == j)
            out_of_fold = (other[here] - other_mean) * ratio + mean
            scores[here] = np.where(self.open[here], own[here], out_of_fold)
        return expit(scores.astype(np.float64)).astype(np.float32)

    def _moments(self, logits: NDArray) -> tuple[NDArray, NDArray]:
        """Mean and deviation of a head's open entries, (C,) each; 0 and 1 of a class with fewer than two of them."""
        whole = np.logical_and.reduce(self.open, axis=1)
        if whole.sum() > 1 and (self.open == whole[:, None]).all():  # a row has all labels or none
            return logits[whole].mean(0), logits[whole].std(0)
        count = self.open.sum(0)
        some = np.maximum(count, 1)
        mean = np.where(self.open, logits, 0).sum(0) / some
        deviation = np.sqrt((np.where(self.open, logits - mean, 0) ** 2).sum(0) / some)
        enough = count > 1
        return np.where(enough, mean, 0).astype(logits.dtype), np.where(enough, deviation, 1).astype(logits.dtype)


def solve_teachers(
    rows: NDArray, y: NDArray, fold: NDArray, *, loss_weight: float, neighbours: int = 0, near: PrincipalAxes | None = None
) -> Teachers:
    """All teachers in one solve; arguments as of `crossfit`. near: rows as neighbours are looked for; None: `rotate(rows)`."""
    if neighbours:
        rows = averaged(near or rotate(rows), neighbours)
    known = y >= 0
    folds = range(n_folds(fold))
    without = [(), *((k,) for k in folds), *itertools.combinations(folds, 2)]
    seen = np.stack([~np.isin(fold, leave) for leave in without]).astype(np.float32)[:, :, None]  # (H, n_l, 1)
    weight = seen if known.all() else seen * known
    heads = solve(rows[: len(y)], y, weight=weight, loss_weight=loss_weight, tolerance=TOLERANCE)
    unlabelled = np.ones((len(rows) - len(y), y.shape[1]), bool)
    return Teachers(fold, np.concatenate([~known, unlabelled]), without, heads.logits(rows))


# -- the recommended rule


def quota_labels(scores: NDArray, y: NDArray, open_entries: NDArray, *, power: float = 2.0) -> Pseudo:
    """Pseudo-labels of the open entries: CAP's quota decides, the measured chance of being right weighs.

    Args:
        scores: (n, C), out of fold for labelled entries.
        y: (n_l, C) labels that the student may know, the others unknown.
        open_entries: (n, C) bool: entries that have no label and are to get one.
        power: exponent of the chance of being right (calibration.power).

    Returns:
        Of all n rows; a labelled entry, and an uncertain one, has weight 0.
    """
    target, weight = np.zeros(scores.shape, np.float32), np.zeros(scores.shape, np.float32)
    some = np.flatnonzero(open_entries.any(0))  # classes in which there is something to label
    if not len(some):
        return Pseudo(target, weight)
    p, y = scores[:, some], y[:, some]
    unlabelled = np.where(open_entries[:, some], p, np.nan)
    label = quota_of(unlabelled, y).labels(unlabelled)  # NaN is neither above nor below: -1
    knots, rates = rates_of_classes(p[: len(y)], y, unlabelled, class_shares(y))
    present = np.stack([np.interp(p[:, c], knots, rates[c]) for c in range(len(some))], axis=1)
    chance = np.where(label == 1, present, 1 - present) ** power
    target[:, some], weight[:, some] = label == 1, np.where(label < 0, 0, chance)
    return Pseudo(target, weight)


# -- students


def solve_students(
    rows: PrincipalAxes,
    y: NDArray,
    fold: NDArray,
    pseudo: list[Pseudo],
    *,
    loss_weight: float,
    pseudo_weight: float,
) -> Solution:
    """The fold students and, last, the student of all labels, in one solve; arguments as of `crossfit`.

    Args:
        rows: all n rows, rotated; the same serve every choice of `pseudo` and `pseudo_weight`.
        pseudo: of each fold's student and, last, of the student.
    """
    n = len(y)
    seen = _student_weights(fold)  # (K + 1, n_l, 1)
    assert len(pseudo) == len(seen), (len(pseudo), len(seen))
    made, weight = (np.stack([part[i] for part in pseudo]) for i in (0, 1))  # (H, m, C) each
    known, labels = y >= 0, np.broadcast_to(y, (len(pseudo), *y.shape))
    weight = pseudo_weight * weight
    if made.shape[1] > len(rows.coordinates) - n:  # labelled rows have pseudo-labels where they have no label
        own, labels = weight[:, :n], np.where(known, labels, made[:, :n])
        label_weight = seen * np.where(known, np.float32(1), own)
        made, weight = made[:, n:], weight[:, n:]
    else:
        label_weight = np.broadcast_to(seen if known.all() else seen * known, labels.shape)
    target, weight = np.concatenate([labels, made], axis=1), np.concatenate([label_weight, weight], axis=1)
    return solve(rows, target, weight=weight, loss_weight=loss_weight, tolerance=TOLERANCE)


def _student_weights(fold: NDArray) -> NDArray:
    """Row weights (K + 1, n_l, 1): of heads without a fold each and, last, of the one with all."""
    return np.concatenate([fold_weights(fold), np.ones((1, len(fold), 1), np.float32)])


def out_of_fold(w: NDArray, b: NDArray, rows: NDArray, fold: NDArray) -> NDArray:
    """Confidences (n_l, C) of labelled rows (n_l, D), each by the student (w (H, C, D), b (H, C)) of its own fold."""
    return expit(out_of_fold_scores(_logits(w, b, rows), fold))


def out_of_fold_at_rank(w: NDArray, b: NDArray, rows: NDArray, fold: NDArray, others: NDArray) -> NDArray:
    """`out_of_fold` in the confidences of the last student: of equal rank among other rows (m, D) that nobody labelled.

    A student without a fold has less to learn from and states smaller logits, so a threshold on its scores lets the last one say
    yes too often. Beyond all other rows a logit keeps its distance to the outermost; without other rows it stays.
    """
    logits = out_of_fold_scores(_logits(w, b, rows), fold)
    if len(others):
        ordered = np.sort(_logits(w, b, others), axis=1)  # (H, m, C)
        for k, c in itertools.product(range(n_folds(fold)), range(logits.shape[1])):
            here, own = fold == k, ordered[k, :, c]
            z = logits[here, c]
            logits[here, c] = np.interp(z, own, ordered[-1, :, c]) + z - np.clip(z, own[0], own[-1])
    return expit(logits)


def _logits(w: NDArray, b: NDArray, rows: NDArray) -> NDArray:
    """Logits (H, n, C) float64 of rows (n, D) float32 by heads w (H, C, D), b (H, C)."""
    return rows.astype(np.float64) @ w.swapaxes(1, 2) + b[:, None]
