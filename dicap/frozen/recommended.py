"""The recommended rule: DiCaP where the backbone is frozen and the head is linear, step by step as docs/photographs.md has it.

`protocol: recommended` (`dicap.frozen.loops.recommended`) and `dicap.sklearn.DiCaPClassifier` both call `fit`, on rows that were
scaled (step 1: `dicap.scaling`) and with the penalty of the head (step 2: `dicap.frozen.loss_weight`).

Letters: n rows, the first n_l labelled; D features, C classes, K folds; y label: 1, 0, or unknown, which is any
number below 0 or NaN.
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

CHANCE_POWER = 2  # of the chance of being right in a pseudo-label's weight: a wrong positive costs more than a missed one
PART = 0.5  # weight of a pseudo-labelled entry that is surely right, beside a labelled one
SHARES = (1.0, 0.5, 0.25)  # of the students in the mixtures that are tried, the largest first
CLEAR = 1.0  # standard errors by which the loss has to fall


class Fit(NamedTuple):
    """What the rule finds."""

    heads: Solution  # the K fold students and, last, the student of all labels; as far as they are used
    labels: "Labels"  # of the last student
    choice: "Choice | None"  # how much of the students is used, where that was chosen


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
        loss_weight: of all heads, as in `dicap.frozen.solver.solve`.
        neighbours: as of `teacher_rows`.
        open_entries: (n, C) bool: entries that get a pseudo-label; None: the entries of unlabelled rows.
        pseudo_weight: of a pseudo-labelled entry that is surely right, beside a labelled one; `auto`: PART, and `chosen` says
            how much of the students is used.
    """
    if open_entries is None:
        open_entries = entries_of_unlabelled(len(rows), y)
    rotated = rotate(rows)
    teachers = solve_teachers(teacher_rows(rows, neighbours, rotated), y, fold, loss_weight=loss_weight)
    labels = labels_of_students(teachers, y, open_entries)
    weight = PART if pseudo_weight == "auto" else pseudo_weight
    pseudo = [each.pseudo for each in labels]
    students = solve_students(rotated, y, fold, pseudo, loss_weight=loss_weight, pseudo_weight=weight)
    if pseudo_weight != "auto":
        return Fit(students, labels[-1], None)
    own = solve_labelled(rows[: len(y)], y, fold, loss_weight=loss_weight)
    heads, choice = chosen(own, students, rows[: len(y)], y, fold)
    return Fit(heads, labels[-1], choice)


# -- 3. Teacher


def teacher_rows(rows: NDArray, neighbours: int, rotated: PrincipalAxes) -> NDArray:
    """Rows (n, r) averaged with so many nearest neighbours; without any the rows (n, D) themselves. rotated: `rotate` of them."""
    return averaged(rotated, neighbours) if neighbours else rows


# -- 4. Correctness out of fold; 5. Labels and weights


class Labels(NamedTuple):
    """Pseudo-labels of all rows, and what they follow from.

    Attributes:
        scores: (n, C) float32 confidences of the teachers.
        label: (n, C) int8: 1, 0, or -1 where there is no pseudo-label.
        weight: (n, C) float32; 0 without a pseudo-label.
        quota: thresholds; a class in which nothing is open has none.
        curve: the chance that a class is present by the confidence; None where nothing is open, or no label known.
    """

    scores: NDArray
    label: NDArray
    weight: NDArray
    quota: Quota
    curve: Curve | None

    @property
    def pseudo(self) -> Pseudo:
        """What a student learns from."""
        return Pseudo((self.label == 1).astype(np.float32), self.weight)


def entries_of_unlabelled(n: int, y: NDArray) -> NDArray:
    """(n, C) bool: the entries of rows beyond the labelled ones."""
    return np.repeat(np.arange(n)[:, None] >= len(y), y.shape[1], axis=1)


def labels_of_students(teachers: Teachers, y: NDArray, open_entries: NDArray) -> list[Labels]:
    """What each fold's student and, last, the student of all labels learns from: nothing that depends on a label of its fold."""
    labels = []
    for k in range(n_folds(teachers.fold)):
        known = np.where((teachers.fold == k)[:, None], np.float32(-1), y)
        labels.append(labels_and_weights(teachers.scores((k,)), known, open_entries))
    return [*labels, labels_and_weights(teachers.scores(), y, open_entries)]


def labels_and_weights(scores: NDArray, y: NDArray, open_entries: NDArray) -> Labels:
    """Pseudo-labels of the open entries: CAP's quota decides, the measured chance of being right weighs.

    Args:
        scores: (n, C), out of fold for labelled entries.
        y: (n_l, C) labels that the student may know, the others unknown.
        open_entries: (n, C) bool: entries that have no label and are to get one.
    """
    unlabelled = np.where(open_entries, scores, np.nan)
    quota = quota_of(unlabelled, y)
    label = quota.labels(unlabelled)  # NaN is neither above nor below: -1
    if not (open_entries.any() and (y >= 0).any()):
        return Labels(scores, label, np.zeros(scores.shape, np.float32), quota, None)
    curve = curve_by_rank(scores[: len(y)], y)
    present = curve.at(scores)
    weight = np.where(label == 1, present, 1 - present) ** CHANCE_POWER * (label >= 0)
    return Labels(scores, label, weight.astype(np.float32), quota, curve)


# -- 6. Student: `dicap.frozen.crossfit.solve_students`; 7. Choice


class Choice(NamedTuple):
    """How much of the students is used, and why."""

    share: float  # one of SHARES, or 0: heads on the labels alone
    log_loss: tuple[float, float]  # of a known entry, out of fold: without students, and with that share (of 0, with the best)
    evidence: float  # standard errors by which it changed, below 0 where it fell

    def in_words(self) -> str:
        """Whether the students helped, and by how much."""
        before, after = self.log_loss
        change = f"log loss {before:.4g} to {after:.4g} ({self.evidence:+.1f} standard errors) out of fold"
        if not self.share:
            return f"did not clearly help, so they were not used: {change} at best"
        return f"helped: {change}" + (f", {self.share:g} of what they change was taken" if self.share < 1 else "")


def chosen(own: Solution, students: Solution, rows: NDArray, y: NDArray, fold: NDArray) -> tuple[Solution, Choice]:
    """(1 - share) own + share students for the largest of SHARES whose out-of-fold loss is CLEAR below that of `own`; else `own`.

    Unlabelled rows can mislead. Safe semi-supervised learning asks for a head that is never clearly worse than the labelled
    rows' own (Li and Zhou, TPAMI 2015); scores out of fold can tell (cross-prediction, Zrnic and Candès, PNAS 2024). They cannot
    choose among many heads: that follows the noise. The heads in between cost no solve, since a mixture of linear heads is one.

    Args:
        own: K heads each without a fold, and one of all folds, on the labelled rows; students: the same on pseudo-labels too.
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
    """Log loss (n_l,) of each row's known entries: of logits (n_l, C) after one slope and one bias for all of them.

    Heads state their chances too high or too low, each in its own way; it is the order of the scores that is compared.
    """
    known, losses = np.asarray(y >= 0), np.zeros(y.shape)
    p = np.clip(logistic_curve(z[known], y[known] > 0), 1e-12, 1 - 1e-12)
    losses[known] = -np.where(y[known] > 0, np.log(p), np.log1p(-p))
    return losses.sum(1)
