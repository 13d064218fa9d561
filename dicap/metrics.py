"""Average precision and calibration error. Scores of any scale: only their order counts for precision.

Letters: N images, C classes.
"""

import numpy as np


def average_precision(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """AP of every class by the published rule (docs/methods.md 2.9): scikit-learn's step-wise sum, ties grouped.

    Args:
        scores: (N, C), any scale; labels: (N, C), 0/1.

    Returns:
        (C,) float64 in [0, 1]. A class without positives has AP 0 and stays in the mean.
    """
    from sklearn.metrics import average_precision_score

    assert scores.shape == labels.shape and scores.ndim == 2, (scores.shape, labels.shape)
    aps = np.zeros(scores.shape[1])
    for c in np.flatnonzero(labels.any(axis=0)):
        aps[c] = average_precision_score(labels[:, c], scores[:, c])
    return aps


def mean_average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """mAP in percent: 100 times the mean over all classes (docs/methods.md 2.9)."""
    return float(100 * average_precision(scores, labels).mean())


def bootstrap_interval(scores: np.ndarray, labels: np.ndarray, resamples: int, rng: np.random.Generator) -> tuple[float, float]:
    """95 % percentile interval of mAP in percent, resampling the test images with replacement.

    Instead of sorting every resample again, each image gets its multiplicity as a weight in one sorted pass per class:
    with weighted cumulative sums TP and FP at the last image of each tie, AP = sum (recall step) * precision.
    A class that has no positive in a resample counts 0 there only if it has none at all; otherwise it is left out of
    that resample's mean, so that rare classes do not bias the interval downwards.

    Returns:
        (low, high) in percent; NaNs if `resamples` is 0.
    """
    if resamples == 0 or len(scores) == 0:
        return float("nan"), float("nan")
    n, classes = scores.shape
    counts = rng.multinomial(n, np.full(n, 1 / n), size=resamples).astype(np.float32)  # (R, N) multiplicities
    total, counted = np.zeros(resamples), np.zeros(resamples)
    for c in range(classes):
        positive = labels[:, c] > 0
        if not positive.any():
            counted += 1
            continue
        ap, valid = weighted_average_precision(scores[:, c], positive, counts)
        total += np.where(valid, ap, 0)
        counted += valid
    maps = 100 * total / np.maximum(counted, 1)
    low, high = np.percentile(maps, [2.5, 97.5])
    return float(low), float(high)


def weighted_average_precision(
    score: np.ndarray, positive: np.ndarray, weights: np.ndarray, block: int = 64
) -> tuple[np.ndarray, np.ndarray]:
    """AP of one class for each row of image weights (R, N): (R,) AP and (R,) whether there is a positive."""
    order = np.argsort(-score, kind="stable")
    ends = np.flatnonzero(np.r_[np.diff(score[order]) != 0, True])  # last image of each group of ties
    positive = positive[order]
    ap, valid = np.empty(len(weights)), np.empty(len(weights), bool)
    for start in range(0, len(weights), block):
        w = weights[start : start + block, order].astype(np.float64)
        seen = w.cumsum(1)[:, ends]
        true = (w * positive).cumsum(1)[:, ends]
        step = np.diff(true, axis=1, prepend=0)
        n_pos = true[:, -1]
        ap[start : start + block] = (step * true / np.maximum(seen, 1)).sum(1) / np.maximum(n_pos, 1)
        valid[start : start + block] = n_pos > 0
    return ap, valid


def expected_calibration_error(confidence: np.ndarray, correct: np.ndarray, bins: int = 20) -> float:
    """Mean over entries of |share correct - mean confidence| of their confidence bin; NaN without entries.

    Args:
        confidence: any shape, in [0, 1]; correct: same shape, 0/1.
    """
    confidence, correct = confidence.ravel().astype(np.float64), correct.ravel().astype(np.float64)
    if confidence.size == 0:
        return float("nan")
    index = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(index, correct - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / confidence.size)
