"""The recommended rule: DiCaP for a linear head on a frozen backbone. The steps have the numbers of docs/photographs.md.

`protocol: recommended` (`dicap.frozen.loops.recommended`) and `dicap.sklearn.DiCaPClassifier` both call `fit`. Before that they
scale the rows (step 1: `dicap.scaling`) and choose the weight of the loss (step 2: `dicap.frozen.loss_weight`).

Letters: n rows, the first n_l labelled; D features, C classes, K folds; y label: 1, 0, or unknown (below 0 or NaN).
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_rel

from dicap.calibration.quota import Quota, quota_of
from dicap.calibration.ranks import Curve, curve_by_rank, logistic_curve
from dicap.frozen.crossfit import Pseudo, Teachers, solve_labelled, solve_students, solve_teachers
from dicap.frozen.folds import n_folds, out_of_fold_scores
from dicap.frozen.neighbours import averaged
from dicap.frozen.solver import PrincipalAxes, Solution, rotate

CHANCE_POWER = 2  # weight = chance of being right to this power, because a false positive costs more than a missed positive
PART = 0.5  # weight of a pseudo-label with a chance of 1, relative to a label
SHARES = (1.0, 0.5, 0.25)  # shares of the students in the mixtures to try, the largest first
CLEAR = 1.0  # standard errors by which the loss must fall


class Fit(NamedTuple):
    """The result of the rule."""

    heads: Solution  # K heads without one fold and, last, the head of all labels: mixtures by the chosen share
    labels: "Labels"  # pseudo-labels of the last student
    choice: "Choice | None"  # the share of the students; None if pseudo_weight is a number


def fit(
    rows: NDArray,
    y: NDArray,
    fold: NDArray,
    *,
    loss_weight: float,
    neighbours: int,
    open_entries: NDArray | None = None,
    pseudo_weight: float | Literal["auto"] = "auto",
) -> Fit:
    """Steps 3 to 7.

    Args:
        rows: (n, D) float32, labelled rows first; y: (n_l, C) labels; fold: (n_l,) of 0 to K - 1.
        loss_weight: see `dicap.frozen.solver.solve`.
        neighbours: see `teacher_rows`.
        open_entries: (n, C) bool: entries that get a pseudo-label; None: the entries of unlabelled rows.
        pseudo_weight: weight of a pseudo-label with a chance of 1, relative to a label; `auto`: PART, and `chosen` chooses the
            share of the students.
    """
    if open_entries is None:
        open_entries = entries_of_unlabelled(len(rows), y)
    rotated = rotate(rows)
    teachers = solve_teachers(teacher_rows(rows, neighbours, rotated), y, fold, loss_weight=loss_weight)
    labels = labels_of_students(teachers, y, open_entries)
    weight = PART if pseudo_weight == "auto" else pseudo_weight
    pseudo = [student.pseudo for student in labels]
    students = solve_students(rotated, y, fold, pseudo, loss_weight=loss_weight, pseudo_weight=weight)
    if pseudo_weight != "auto":
        return Fit(students, labels[-1], None)
    own = solve_labelled(rows[: len(y)], y, fold, loss_weight=loss_weight)
    heads, choice = chosen(own, students, rows[: len(y)], y, fold)
    return Fit(heads, labels[-1], choice)


# -- 3. Teacher


def teacher_rows(rows: NDArray, neighbours: int, rotated: PrincipalAxes) -> NDArray:
    """Rows (n, r) averaged with this number of nearest neighbours; with 0 the rows (n, D). `rotated`: the rows after `rotate`."""
    return averaged(rotated, neighbours) if neighbours else rows


# -- 4. Correctness out of fold; 5. Labels and weights


class Labels(NamedTuple):
    """Pseudo-labels of all rows, and their scores, thresholds and curve.

    Attributes:
        scores: (n, C) float32 confidences of the teachers.
        label: (n, C) int8: 1, 0, or -1 for an entry without a pseudo-label.
        weight: (n, C) float32; 0 without a pseudo-label.
        quota: thresholds; a class without open entries has none.
        curve: the chance that a class is present, by confidence; None without open entries or without known labels.
    """

    scores: NDArray
    label: NDArray
    weight: NDArray
    quota: Quota
    curve: Curve | None

    @property
    def pseudo(self) -> Pseudo:
        """Targets and weights for a student."""
        return Pseudo((self.label == 1).astype(np.float32), self.weight)


def entries_of_unlabelled(n: int, y: NDArray) -> NDArray:
    """(n, C) bool: the entries of unlabelled rows."""
    return np.repeat(np.arange(n)[:, None] >= len(y), y.shape[1], axis=1)


def labels_of_students(teachers: Teachers, y: NDArray, open_entries: NDArray) -> list[Labels]:
    """Pseudo-labels for each fold student and, last, for the student of all labels. None depends on a label of its fold."""
    labels = []
    for k in range(n_folds(teachers.fold)):
        known = np.where((teachers.fold == k)[:, None], np.float32(-1), y)
        labels.append(labels_and_weights(teachers.scores((k,)), known, open_entries))
    return [*labels, labels_and_weights(teachers.scores(), y, open_entries)]


def labels_and_weights(scores: NDArray, y: NDArray, open_entries: NDArray) -> Labels:
    """Pseudo-labels of the open entries: CAP's quota gives the label, the measured chance of being right gives the weight.

    Args:
        scores: (n, C), out of fold for labelled entries.
        y: (n_l, C) labels that the student may know; other labels are marked as unknown.
        open_entries: (n, C) bool: entries without a label that get a pseudo-label.
    """
    unlabelled = np.where(open_entries, scores, np.nan)
    quota = quota_of(unlabelled, y)
    label = quota.labels(unlabelled)  # NaN is neither above nor below a threshold, so it gives -1
    if not (open_entries.any() and (y >= 0).any()):
        return Labels(scores, label, np.zeros(scores.shape, np.float32), quota, None)
    curve = curve_by_rank(scores[: len(y)], y)
    present = curve.at(scores)
    weight = np.where(label == 1, present, 1 - present) ** CHANCE_POWER * (label >= 0)
    return Labels(scores, label, weight.astype(np.float32), quota, curve)


# -- 6. Student: `dicap.frozen.crossfit.solve_students`; 7. Choice


class Choice(NamedTuple):
    """The chosen share of the students, and the evidence for it."""

    share: float  # one of SHARES, or 0: heads on the labels alone
    log_loss: tuple[float, float]  # out of fold, per known entry: without students, and with `share` (if 0, with the best share)
    evidence: float  # change of the loss in standard errors; below 0 if the loss fell

    def in_words(self) -> str:
        """Whether the students helped, and by how much."""
        before, after = self.log_loss
        change = f"log loss {before:.4g} to {after:.4g} ({self.evidence:+.1f} standard errors) out of fold"
        if not self.share:
            return f"did not clearly help, so they were not used: {change} at best"
        return f"helped: {change}" + (f", with {self.share:g} of their change" if self.share < 1 else "")


def chosen(own: Solution, students: Solution, rows: NDArray, y: NDArray, fold: NDArray) -> tuple[Solution, Choice]:
    """(1 - share) own + share students, with the largest of SHARES whose out-of-fold loss is clearly below the loss of `own`.

    If no share is clearly better, the result is `own`. Unlabelled rows can mislead, and safe semi-supervised learning asks for a
    head that is never clearly worse than a head on the labels alone (Li and Zhou, TPAMI 2015). Out-of-fold scores show this
    (cross-prediction, Zrnic and Candès, PNAS 2024), but a choice among many heads would overfit them. A mixture of linear heads
    is a linear head, so mixtures need no further solve.

    Args:
        own: K heads without one fold, and one head of all folds, on the labelled rows; students: these with pseudo-labels too.
        rows: (n_l, D) labelled rows; y: (n_l, C); fold: (n_l,).
    """
    before, after = (out_of_fold_scores(heads.logits(rows), fold).astype(np.float64) for heads in (own, students))  # (n_l, C)
    losses = {share: calibrated_losses((1 - share) * before + share * after, y) for share in (0.0, *SHARES)}
    tests = {share: ttest_rel(losses[share], losses[0.0]).statistic for share in SHARES}  # NaN where all are equal
    evidence = {share: float(np.nan_to_num(statistic, posinf=0, neginf=0)) for share, statistic in tests.items()}
    share = next((share for share in SHARES if evidence[share] <= -CLEAR), 0.0)
    shown = share or min(SHARES, key=evidence.__getitem__)
    known = np.count_nonzero(y >= 0)
    choice = Choice(share, (float(losses[0.0].sum() / known), float(losses[shown].sum() / known)), evidence[shown])
    if share in (0.0, 1.0):
        return students if share else own, choice
    return students._replace(w=(1 - share) * own.w + share * students.w, b=(1 - share) * own.b + share * students.b), choice


def calibrated_losses(z: NDArray, y: NDArray) -> NDArray:
    """Log loss (n_l,) of each row's known entries, from logits (n_l, C) after Platt scaling with one slope and one bias.

    Each head is miscalibrated in its own way. Platt scaling removes this, so that only the order of the scores is compared.
    """
    known, losses = np.asarray(y >= 0), np.zeros(y.shape)
    p = np.clip(logistic_curve(z[known], y[known] > 0), 1e-12, 1 - 1e-12)
    losses[known] = -np.where(y[known] > 0, np.log(p), np.log1p(-p))
    return losses.sum(1)
