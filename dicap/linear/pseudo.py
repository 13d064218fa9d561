"""Pseudo-labels of open entries by the recommended rule: CAP's quota decides, the measured chance of being right weighs.

Letters: n rows, of which the first n_l are labelled; C classes; y label: 1, 0, or unknown, which is any number below 0 or NaN.
"""

import numpy as np
from numpy.typing import NDArray

from dicap.calibration.logistic import rates_of_classes, shares_of_classes
from dicap.linear.quota import quota_of
from dicap.linear.students import Pseudo


def pseudo_labels(scores: NDArray, y: NDArray, open_entries: NDArray, *, power: float = 2.0) -> Pseudo:
    """Targets and weights (n, C) of the open entries; a labelled entry, and an uncertain one, has weight 0.

    Args:
        scores: (n, C) by `dicap.linear.teachers.Teachers.scores`: out of fold for labelled entries.
        y: (n_l, C) labels that the student may know, the others unknown.
        open_entries: (n, C) bool: entries that have no label and are to get one.
        power: exponent of the chance of being right (calibration.power).
    """
    target, weight = np.zeros(scores.shape, np.float32), np.zeros(scores.shape, np.float32)
    some = np.flatnonzero(open_entries.any(0))  # classes in which there is something to label
    if not len(some):
        return Pseudo(target, weight)
    p, y = scores[:, some], y[:, some]
    unlabelled = np.where(open_entries[:, some], p, np.nan)
    label = quota_of(unlabelled, y).labels(unlabelled)  # NaN is neither above nor below: -1
    knots, rates = rates_of_classes(p[: len(y)], y, unlabelled, shares_of_classes(y))
    present = np.stack([np.interp(p[:, c], knots, rates[c]) for c in range(len(some))], axis=1)
    chance = np.where(label == 1, present, 1 - present) ** power
    target[:, some], weight[:, some] = label == 1, np.where(label < 0, 0, chance)
    return Pseudo(target, weight)
