"""Average precision and its interval. Scores may have any scale, because only their order matters.

Letters: N images, C classes. Entries with a label below 0 are unknown; the AP of a class uses its known entries only.
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
    """AP of one class, (n,) each: the sum over distinct scores, highest first, of precision times gain in recall.

    The same value as `sklearn.metrics.average_precision_score`, whose import takes longer than scoring a set of test images.
    """
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # last entry of each group of ties
    hits = np.cumsum(positive[order])[last]
    precision, recall = hits / (last + 1), hits / hits[-1]
    return -float(np.sum(np.diff(recall[::-1], append=0.0) * precision[::-1]))  # lowest first, for scikit-learn's rounding


def mean_average_precision(scores: np.ndarray, labels: np.ndarray, *, testable: bool = False) -> float:
    """mAP in percent: 100 times the mean over all classes (docs/methods.md 2.9).

    Args:
        testable: leave out the classes that cannot be tested (`can_be_tested`).
    """
    can_test = can_be_tested(labels)
    counted = can_test if testable and can_test.any() else slice(None)
    return float(100 * average_precision(scores, labels)[counted].mean())


def can_be_tested(labels: np.ndarray) -> np.ndarray:
    """Whether each class has a positive among labels (N, C), and a known negative if it has unknown entries; (C,) bool.

    Without a known negative every order of the known entries has AP 1.
    """
    return (labels > 0).any(0) & ((labels == 0).any(0) | (labels > 0).all(0))


def leave_one_out(scores: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """mAP in percent of all images, and of all images but one, for each image.

    A class that loses its only positive image is left out of the mean; a class without positives counts 0 in every mean. One
    sort per class gives all N values: removing an image changes only the precisions below it, each by this one image, so
    cumulative sums from both ends of the list suffice.

    Args:
        scores: (N, C), any scale; labels: (N, C), 0/1.

    Returns:
        mAP, float; mAP without image i, (N,) float64, NaN if no class keeps a positive.
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
    """AP of one class, and its AP without each image, (N,): NaN if this image is the only positive."""
    order = np.argsort(-score, kind="stable")
    y = positive[order].astype(int)  # (N,) highest score first
    last = np.r_[np.diff(score[order]) != 0, True]  # (N,) bool: the last image of a group of ties
    group = np.cumsum(last) - last  # (N,) the group of each image
    retrieved = np.flatnonzero(last) + 1  # (G,) images up to the end of each group
    true = y.cumsum()[last]  # (G,) positives among them
    step, others = np.diff(true, prepend=0), np.maximum(retrieved - 1, 1)
    above = np.r_[0, np.cumsum(step * true / retrieved)]  # (G + 1,) for each group the sum over the groups above it
    # below[k]: (G + 1,) for each group the sum from this group on, without one image of label k above it
    below = np.stack([np.r_[np.cumsum((step * (true - k) / others)[::-1])[::-1], 0] for k in (0, 1)])
    own = (step[group] - y) * (true[group] - y) / others[group]
    remaining = true[-1] - y
    without = np.empty(len(y))
    sums = above[group] + own + below[y, group + 1]
    without[order] = np.where(remaining > 0, sums / np.maximum(remaining, 1), np.nan)
    return float(above[-1] / true[-1]), without


def jackknife_interval(value: float, left_out: np.ndarray) -> tuple[float, float]:
    """95 % interval of a statistic from its leave-one-out values: bias-corrected, Student's t.

    The centre is `value` minus the jackknife's estimate of its bias. The degrees of freedom follow from the leave-one-out
    values (Satterthwaite): they are few if a few images carry most of the variance. docs/results.md has the simulation.

    Args:
        value: the statistic of all N images; left_out: (N,) the statistic without each image.

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
    half_width = float(stdtrit(freedom, 0.975)) * np.sqrt((n - 1) / n * squares.sum())
    return float(centre - half_width), float(centre + half_width)


def map_interval(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    """Estimate and 95 % interval, in percent, of the mAP on infinitely many test images, by the published rule.

    Classes without positives count 0. With few test images the mAP of rare classes is biased upwards. The interval corrects this
    bias, so the uncorrected mAP may be above the interval.

    Args:
        scores: (N, C), any scale; labels: (N, C), 0/1.

    Returns:
        (corrected, low, high), each within 0 and 100; NaNs if `jackknife_interval` returns NaNs.
    """
    low, high = jackknife_interval(*leave_one_out(scores, labels))
    corrected, low, high = np.clip([(low + high) / 2, low, high], 0, 100)
    return float(corrected), float(low), float(high)
