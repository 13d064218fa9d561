"""What a published model carries to be used: thresholds per class and the measured correctness of its confidences."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dicap.calibration.curve import Curve, carry_over, curve_by_rank
from dicap.calibration.decision import Decisions, plain
from dicap.methods.base import Calibrates
from dicap.metrics.operating_point import best_threshold
from dicap.randomness import permutation
from dicap.settings.methods import METHODS
from dicap.training.experiment import Experiment

MOST_CARRIED = 4096  # images on which a curve is carried over to a fine-tuned network: more would not move it


@dataclass(frozen=True)
class Before:
    """A network before fine-tuning: its curve, and its scores (n, C) of unlabelled images, `rows`."""

    curve: Curve
    rows: np.ndarray
    scores: Tensor


@dataclass(frozen=True)
class Counted:
    """A curve that was counted out of fold, on scores p (n, C) and labels y (n, C) of the labelled images."""

    curve: Curve
    p: Tensor
    y: Tensor


@dataclass(frozen=True)
class Carried:
    """What was counted out of fold on a frozen backbone, and the scores (n, C) of unlabelled images, `rows`, by its head."""

    counted: Counted
    rows: np.ndarray
    scores: Tensor


def decisions_of(
    experiment: Experiment, network: nn.Module, stage: str, before: Before | Counted | Carried | None = None
) -> Decisions:
    """Thresholds from D_sup by the method's own rule, and the correctness curve counted on D_est, for this network.

    Only a method that keeps D_est from training can count on it; the others decide at 0.5 and carry no curve. So does a warm-up
    model decide: the thresholds belong to the main stage, and another rule must not train the warm-up again. After fine-tuning,
    which reads the labels of D_est, the curve of the network `before` is carried over on unlabelled images. So are curve and
    thresholds of heads on a frozen backbone once the whole network was trained.
    """
    method, roles = experiment.method, experiment.roles
    prior = prior_of(experiment.labels.of(roles.labelled).numpy())
    if not isinstance(method, Calibrates):
        return plain(
            prior, f"no curve: {METHODS[experiment.settings.method].title} trains on all labelled images; decisions at 0.5"
        )
    if stage == "warmup" and experiment.settings.calibration.source == "cross_fit":
        return plain(prior, "no curve: the warm-up trains on all labelled images, the main stage measures; decisions at 0.5")
    if isinstance(before, Carried):
        return _carried(method, before, prior, _scores(experiment, network, before.rows))
    tau_pos = tau_neg = np.full(method.classes, 0.5)
    if stage != "warmup":
        if isinstance(before, Counted):
            thresholds = method.thresholds(before.p, before.y)
        else:
            y = experiment.labels.of(roles.sup).to(experiment.runtime.device)
            thresholds = method.thresholds(experiment.predict(network, roles.sup), y)
        tau_pos = torch.where(thresholds.active, thresholds.tau_pos, 1.0).cpu().numpy()
        tau_neg = torch.where(thresholds.active, thresholds.tau_neg, 0.0).cpu().numpy()
    y_est = experiment.labels.of(roles.est)
    note = f"counted on {len(roles.est)} labelled images kept from training"
    f1_threshold = None
    if isinstance(before, Counted):
        f1_threshold = best_threshold(before.p.numpy(), before.y.numpy())
        curve, note = before.curve, f"counted on {len(before.y)} labelled images, each scored by a head that never saw it"
    elif before is None:
        p_est = _scores(experiment, network, roles.est)
        curve, f1_threshold = curve_by_rank(p_est, y_est), best_threshold(p_est.numpy(), y_est.numpy())
    elif len(before.rows):
        curve = carry_over(before.curve, before.scores, _scores(experiment, network, before.rows))
        note += f", before fine-tuning, and carried over on {len(before.rows)} unlabelled images"
    else:
        curve, note = before.curve, note + ", before fine-tuning"
    entries = int(((before.y if isinstance(before, Counted) else y_est) >= 0).sum())
    return Decisions(tau_pos, tau_neg, prior, curve, note, entries, f1_threshold)


def prior_of(y: np.ndarray) -> np.ndarray:
    """(C,) share of positives of each class among the known entries of labels (n, C); 0 where none is known."""
    if (y >= 0).all():
        return y.mean(0)
    return (y > 0).sum(0) / np.maximum((y >= 0).sum(0), 1)


def _carried(method: Calibrates, before: Carried, prior: np.ndarray, after: Tensor) -> Decisions:
    """Thresholds and curve of the heads before, at the confidences `after` (n, C) of the whole network for the same images."""
    counted = before.counted
    thresholds = method.thresholds(counted.p, counted.y)
    pair = (moved(tau.cpu().numpy(), before.scores.numpy(), after.numpy()) for tau in (thresholds.tau_pos, thresholds.tau_neg))
    active = thresholds.active.cpu().numpy()
    tau_pos, tau_neg = (np.where(active, tau, extreme) for tau, extreme in zip(pair, (1.0, 0.0), strict=True))
    curve = carry_over(counted.curve, before.scores, after) if len(after) else counted.curve
    carried = (
        f"and carried over on {len(after)} unlabelled images" if len(after) else "with no unlabelled image to carry it over on"
    )
    note = (
        f"counted on {len(counted.y)} labelled images, each scored by a head that never saw it, on the frozen backbone, {carried}"
    )
    return Decisions(tau_pos, tau_neg, prior, curve, note, entries=int((counted.y >= 0).sum()))


def moved(tau: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Thresholds (C,) of confidences `before` (n, C), at the confidences `after` (n, C) of equal rank in the class.

    Beyond the least and the largest confidence a threshold stays beyond: 0 stays 0, and 1 stays 1.
    """
    ends = np.array([0.0, 1.0])[:, None].repeat(len(tau), 1)
    x, y = (np.sort(np.concatenate([part, ends]).astype(np.float64), axis=0) for part in (before, after))
    return np.array([np.interp(tau[c], x[:, c], y[:, c]) for c in range(len(tau))])


def before_finetuning(experiment: Experiment, network: nn.Module) -> Before:
    """What `decisions_of` needs to know of the network that fine-tuning starts from."""
    rows = experiment.roles.unlabeled
    if len(rows) > MOST_CARRIED:
        rows = np.sort(rows[permutation(experiment.settings.seed, "finetune", 0, len(rows), "carried")[:MOST_CARRIED]])
    return Before(_counted(experiment, network), rows, _scores(experiment, network, rows))


def _counted(experiment: Experiment, network: nn.Module) -> Curve:
    est = experiment.roles.est
    return curve_by_rank(_scores(experiment, network, est), experiment.labels.of(est))


def _scores(experiment: Experiment, network: nn.Module, rows: np.ndarray) -> Tensor:
    """(n, C) on the host, where a published model's curve is."""
    return experiment.predict(network, rows).cpu()
