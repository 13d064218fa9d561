"""The pseudo-label rules of the compared methods as pure functions of teacher scores (docs/methods.md 4).

p are scores (N, C) of the unlabelled images, p_l scores and y labels (N_l, C) of the labelled images. Pseudo-labels are int8: 1,
0, or -1 for an entry that is not used in training. Entries of y below 0 are unknown and ignored. No rule gives a positive to a
class without a labelled positive: this class is guarded, because its scores rank images by noise alone.
"""

import math

import torch
from torch import Tensor

from dicap.calibration.quota import Quota, quota_of
from dicap.calibration.thresholds import Thresholds

PUBLISHED_K = {"voc2007": 2, "voc2012": 2, "coco2014": 3, "coco2017": 3, "nuswide": 2}  # a table in CAP's code


def seen(y: Tensor) -> Tensor:
    """Whether each class has a labelled positive, (C,) bool, from labels (N_l, C)."""
    return (y > 0).any(0)


def masked(label: Tensor, active: Tensor) -> Tensor:
    """Labels (N, C) with -1 in the columns of inactive classes; `active` is (C,) bool."""
    return torch.where(active, label, torch.full_like(label, -1))


def default_k(y: Tensor, dataset: str) -> int:
    """k of Top-k: the published table, else max(1, rounded mean number of labels per image) (docs/methods.md 4.4)."""
    if dataset in PUBLISHED_K:
        return PUBLISHED_K[dataset]
    if (y < 0).any():  # the sum over classes of the share of positives among known entries
        return max(1, round(float(((y > 0).sum(0).double() / (y >= 0).sum(0).clamp_min(1)).sum())))
    return max(1, round(float(y.sum(1).double().mean())))


def top_k(p: Tensor, k: int, active: Tensor) -> Tensor:
    """1 for the k highest scores of each image, 0 for the others (Top-1, Top-k; docs/methods.md 4.4).

    Ties go to the earlier class. Inactive classes are not ranked and get -1.
    """
    ranked = torch.where(active, p.double(), -torch.inf).argsort(dim=1, descending=True, stable=True)  # (N, C)
    label = torch.zeros(p.shape, dtype=torch.int8, device=p.device)
    label.scatter_(1, ranked[:, : min(k, p.shape[1])], 1)
    return masked(label, active)


def fixed_threshold(p: Tensor, threshold: Tensor | float, active: Tensor) -> Tensor:
    """1[p >= threshold]; the threshold is one number, or (C,) with one per class (IAT, D2L)."""
    return masked((p.double() >= threshold).to(torch.int8), active)


def matched_threshold(p_l: Tensor, y: Tensor) -> float:
    """The threshold that predicts as many positives on the labelled images as they have (IAT; docs/methods.md 4.4).

    With m labelled positives it is the m-th largest of the scores (N_l, C); without positives it is above every score.
    """
    m = int((y > 0).sum())
    return float(p_l[y >= 0].double().sort(descending=True).values[m - 1]) if m else float("inf")


def quota(p: Tensor, y: Tensor, *, eta_pos: float = 1.0, eta_neg: float = 0.998) -> tuple[Tensor, Thresholds, Tensor]:
    """CAP's rank rule: the share of pseudo-positives equals the share of labelled positives (docs/methods.md 4.6, Equation (18)).

    `dicap.calibration.quota.quota_of` computes the thresholds.

    Args:
        p: (N, C) scores; y: (N_l, C) labels. A class with a quota of 0 is left out. The published code takes index -1 there,
            which makes every image positive.

    Returns:
        labels (N, C) int8; thresholds: entries between tau_neg and tau_pos are not used; the number of guarded classes, ().
    """
    scores = p.cpu().numpy()
    quota = quota_of(scores, y.cpu().numpy(), eta_pos=eta_pos, eta_neg=eta_neg)
    label = torch.from_numpy(quota.labels(scores)).to(p.device)
    thresholds = thresholds_of(quota, p.device)
    return label, thresholds, (~thresholds.active).sum()


def thresholds_of(quota: Quota, device: torch.device | None = None) -> Thresholds:
    """A quota's thresholds as `Thresholds`; classes with a quota of 0 are inactive."""
    _, tau_pos, tau_neg, n_pos, n_neg, active = (torch.from_numpy(part).to(device) for part in quota)
    # Infinite thresholds are recorded as 0 and 1, which changes nothing: all scores are in [0, 1].
    return Thresholds(tau_pos.clamp(0, 1), tau_neg.clamp(0, 1), n_pos, n_neg, torch.zeros_like(active), active)


def metric_thresholds(p_l: Tensor, y: Tensor, *, beta: float = 0.5, steps: int = 100) -> tuple[Thresholds, Tensor]:
    """D2L's metric-adaptive thresholds: per class the first of 0.00, 0.01 ... 0.99 with the best F-beta.

    F-beta is D2L's (1 + b^2) P R / (b P + R); the standard denominator is b^2 P + R (docs/methods.md 4.9). A class without
    labelled positives is left out; the published code's threshold of 0 makes every image positive.

    Args:
        p_l: (N_l, C) scores of the labelled images; y: (N_l, C) labels.

    Returns:
        thresholds with tau_pos = tau_neg; the number of guarded classes, ().
    """
    p_l, positive = p_l.double(), y > 0
    n_pos, n_neg = positive.sum(0), (y == 0).sum(0)
    grid = torch.arange(steps, dtype=torch.float64, device=p_l.device) / steps
    scores = []
    for threshold in grid.unbind():  # a loop over 100 thresholds: N_l x C x 100 at once is too much on COCO
        chosen = (p_l >= threshold) & (y >= 0)
        hits = (chosen & positive).sum(0).double()
        precision, recall = hits / chosen.sum(0).clamp_min(1), hits / n_pos.clamp_min(1)
        denominator = beta * precision + recall
        f_beta = (1 + beta**2) * precision * recall / denominator.clamp_min(1e-300)
        scores.append(torch.where(denominator > 0, f_beta, torch.zeros_like(denominator)))
    score = torch.stack(scores)  # (100, C)
    tau = grid[score.argmax(0)]  # argmax takes the first of ties
    guarded = n_pos == 0
    tau = torch.where(guarded, math.nextafter(1, 2), tau)  # above every score
    return Thresholds(tau, tau, n_pos, n_neg, torch.zeros_like(guarded), ~guarded), guarded.sum()


def hard_negatives(cosine: Tensor, label: Tensor, ratio: float) -> Tensor:
    """BBAM's negative sampling: all positives of a class and its `ratio` times as many hardest negatives (docs/methods.md 4.8).

    Args:
        cosine: (N, C) similarity of each image to each class's prototype; label: (N, C) 1, 0 or -1.

    Returns:
        (N, C) bool, false for -1. A class without positives has no prototype and keeps all its negatives.

    This differs from the published code on purpose, in 170 of 60,000 entries of a comparison. The published code sums the labels
    1 of positives and -1 of masked entries, so each masked entry lowers the count of positives and loses `ratio` negatives.
    """
    positive, negative = label == 1, label == 0
    count = (ratio * positive.sum(0).double()).long()  # (C,)
    order = torch.where(negative, cosine.double(), -torch.inf).argsort(dim=0, descending=True, stable=True)
    rank = torch.empty_like(order)
    rank.scatter_(0, order, torch.arange(len(order), device=order.device).unsqueeze(1).expand_as(order))
    return positive | (negative & ((rank < count) | ~positive.any(0)))


def closest(distance: Tensor, free: Tensor, count: int) -> Tensor:
    """DRML's selection: the `count` images with the smallest distance (docs/methods.md 4.5).

    Args:
        distance: (N,); free: (N,) bool, the images to choose from.

    Returns:
        (N,) bool.
    """
    order = torch.where(free, distance.double(), torch.inf).argsort(dim=0, stable=True)
    chosen = torch.zeros_like(free)
    chosen[order[:count]] = True
    return chosen & free
