"""Average precision and its interval. Scores of any scale: only their order counts for precision.

Letters: N images, C classes. Entries whose label is below 0 are unknown: every class is judged by its known ones.
"""

import numpy as np


def average_precision(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """AP of every class by the published rule (docs/methods.md 2.9): scikit-learn's step-wise sum, ties grouped.

    Args:
        scores: (N, C), any scale; labels: (N, C), 0/1.

    Returns:
        (C,) float64 in [0, 1]. A class without positives has AP 0 and stays in the mean.
    """
    assert scores.shape == labels.shape and scores.ndim == 2, (scores.shape, labels.shape)
    aps = np.zeros(scores.shape[1])
    known = labels >= 0
    for c in np.flatnonzero((labels > 0).any(axis=0)):
        aps[c] = _average_precision(labels[known[:, c], c] > 0, scores[known[:, c], c])
    return aps


def _average_precision(positive: np.ndarray, scores: np.ndarray) -> float:
    """Sum over the distinct scores, highest first, of the precision there times the recall gained; (n,) each, of one class.

    That of `sklearn.metrics.average_precision_score`, which takes longer to import than a set of test images to be scored.
    """
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # of equal scores
    hits = np.cumsum(positive[order])[last]
    precision, recall = hits / (last + 1), hits / hits[-1]
    return -float(np.sum(np.diff(recall[::-1], append=0.0) * precision[::-1]))  # lowest first, as there: the same rounding


def mean_average_precision(scores: np.ndarray, labels: np.ndarray, *, testable: bool = False) -> float:
    """mAP in percent: 100 times the mean over all classes (docs/methods.md 2.9).

    Args:
        testable: leave out the classes that cannot be tested (`can_be_tested`).
    """
    able = can_be_tested(labels)
    counted = able if testable and able.any() else slice(None)
    return float(100 * average_precision(scores, labels)[counted].mean())


def can_be_tested(labels: np.ndarray) -> np.ndarray:
    """Classes, (C,) bool, that have a positive among labels (N, C), and where entries are unknown a known negative too.

    With positives alone every order is perfect, and AP would always be 1.
    """
    return (labels > 0).any(0) & ((labels == 0).any(0) | (labels > 0).all(0))


def leave_one_out(scores: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """mAP in percent of the images, and of the images without each one in turn.

    A class that loses its only positive image is left out of that mean; a class without positives counts 0 in all of them. All
    N values take one sort a class: without an image, every precision below it changes by that image alone, so sums from the top
    and from the bottom of the list give the rest.

    Args:
        scores: (N, C), any scale; labels: (N, C), 0/1.

    Returns:
        mAP, float; mAP without image i, (N,) float64, NaN where no class keeps a positive.
    """
    n, classes = scores.shape
    tested = np.flatnonzero((labels > 0).any(axis=0))
    whole, total, counted = 0.0, np.zeros(n), np.zeros(n)
    for c in tested:
        known = labels[:, c] >= 0
        without = np.empty(n)
        ap, without[known] = _leave_one_out(scores[known, c], labels[known, c] > 0)
        without[~known] = ap  # leaving out an unknown entry changes nothing
        kept = ~np.isnan(without)
        whole += ap
        total[kept] += without[kept]
        counted += kept
    with np.errstate(invalid="ignore"):
        left_out = total / counted * len(tested)
    return 100 * whole / classes, 100 * left_out / classes


def _leave_one_out(score: np.ndarray, positive: np.ndarray) -> tuple[float, np.ndarray]:
    """AP of one class, and without each image, (N,): NaN where that was the only positive."""
    order = np.argsort(-score, kind="stable")
    y = positive[order].astype(int)  # (N,) best score first
    last = np.r_[np.diff(score[order]) != 0, True]  # of its group of ties
    group = np.cumsum(last) - last  # (N,) the group of each image
    seen = np.flatnonzero(last) + 1  # (G,) images up to the end of each group
    true = y.cumsum()[last]  # (G,) positives among them
    step, others = np.diff(true, prepend=0), np.maximum(seen - 1, 1)
    above = np.r_[0, np.cumsum(step * true / seen)]  # (G + 1,) the sum over the groups above each
    # below[k]: (G + 1,) the sum over the groups from each on, when an image above them with label k is missing
    below = np.stack([np.r_[np.cumsum((step * (true - k) / others)[::-1])[::-1], 0] for k in (0, 1)])
    own = (step[group] - y) * (true[group] - y) / others[group]
    remaining = true[-1] - y
    without = np.empty(len(y))
    sums = above[group] + own + below[y, group + 1]
    without[order] = np.where(remaining > 0, sums / np.maximum(remaining, 1), np.nan)
    return float(above[-1] / true[-1]), without


def jackknife_interval(value: float, left_out: np.ndarray) -> tuple[float, float]:
    """95 % interval of a statistic from its leave-one-out values: bias-corrected, Student's t.

    The centre is not `value` but `value` less the jackknife's estimate of its bias. The degrees of freedom follow from
    the estimated variance (Satterthwaite): few, where a few images carry most of it. docs/results.md has the simulation.

    Args:
        value: of all N images; left_out: (N,) without each image.

    Returns:
        (low, high); NaNs for fewer than two images or if a leave-one-out value is NaN.
    """
    from scipy.special import stdtrit

    n = len(left_out)
    if n < 2 or np.isnan(left_out).any():
        return float("nan"), float("nan")
    squares = (left_out - left_out.mean()) ** 2
    centre = value - (n - 1) * (left_out.mean() - value)
    spread = ((squares - squares.mean()) ** 2).sum()
    freedom = min(max(2 * squares.sum() ** 2 / spread, 2), n - 1) if spread > 0 else n - 1
    half = float(stdtrit(freedom, 0.975)) * np.sqrt((n - 1) / n * squares.sum())
    return float(centre - half), float(centre + half)


def map_interval(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    """Corrected value and 95 % interval in percent of the mAP that endlessly many test images would give, by the published rule.

    Classes without positives count 0, so it speaks of the others alone. mAP of few images lies too high where classes
    are rare, and the interval allows for it: mAP itself may lie above its upper end.

    Args:
        scores: (N, C), any scale; labels: (N, C), 0/1.

    Returns:
        (corrected, low, high), each within 0 and 100; NaNs where `jackknife_interval` has none.
    """
    low, high = jackknife_interval(*leave_one_out(scores, labels))
    corrected, low, high = np.clip([(low + high) / 2, low, high], 0, 100)
    return float(corrected), float(low), float(high)
