"""What a published model carries to be used: thresholds per class and the measured correctness of its confidences."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from dicap.calibration.counts import ENOUGH, Labelled
from dicap.calibration.curve import Curve, carry_over, curve_by_rank
from dicap.calibration.decision import Decisions, plain
from dicap.calibration.thresholds import Thresholds
from dicap.methods.base import Calibrates
from dicap.metrics.operating_point import best_threshold
from dicap.randomness import permutation
from dicap.settings.methods import METHODS
from dicap.training.experiment import Experiment

MOST_CARRIED = 4096  # images on which a curve is carried over to a fine-tuned network: more would not move it


@dataclass(frozen=True)
class Carried:
    """Unlabelled images, `rows`, and their scores (m, C) by the network that a curve was counted with."""

    rows: np.ndarray
    scores: Tensor


@dataclass(frozen=True)
class CurveSource:
    """What a curve was counted on: scores and labels (n, C) of images that the network which scored them never saw.

    Attributes:
        p, y: scores and labels. at_rank: p in the scores of the published head, where other heads gave p.
        note: which images those are.
        thresholds: of confidences p where they are taken from these images too; None: the method's own, from D_sup.
        carried: the published network was trained on afterwards; on these images the curve is carried over to it.
    """

    p: Tensor
    y: Tensor
    note: str
    thresholds: Thresholds | None = None
    carried: Carried | None = None
    at_rank: Tensor | None = None

    @staticmethod
    def on_est(experiment: Experiment, network: nn.Module) -> "CurveSource":
        """D_est, by the network itself."""
        est = experiment.roles.est
        note = f"counted on {len(est)} labelled images kept from training"
        return CurveSource(_scores(experiment, network, est), experiment.labels.of(est), note)

    @staticmethod
    def before_finetuning(experiment: Experiment, network: nn.Module) -> "CurveSource":
        """D_est, by the network that fine-tuning, which reads its labels, starts from."""
        rows = some_of(experiment.roles.unlabeled, MOST_CARRIED, experiment.settings.seed, "finetune")
        counted = CurveSource.on_est(experiment, network)
        return counted.carried_over(rows, _scores(experiment, network, rows), "before fine-tuning")

    @staticmethod
    def out_of_fold(p: Tensor, y: Tensor, thresholds: Thresholds, at_rank: Tensor) -> "CurveSource":
        """All labelled images, each scored by the head of its fold."""
        note = f"counted on {len(y)} labelled images, each scored by a head that never saw it"
        return CurveSource(p, y, note, thresholds, at_rank=at_rank)

    def carried_over(self, rows: np.ndarray, scores: Tensor, where: str) -> "CurveSource":
        """The same for a network that is trained on, from one that gives unlabelled images, `rows`, these scores (m, C)."""
        carried = f", and carried over on {len(rows)} unlabelled images" if len(rows) else ""
        return replace(self, note=f"{self.note}, {where}{carried}", carried=Carried(rows, scores))

    @property
    def curve(self) -> Curve:
        """P(y = 1 | p) of the network that scored them."""
        return curve_by_rank(self.p, self.y)


def decisions_of(experiment: Experiment, network: nn.Module, stage: str, source: CurveSource | None = None) -> Decisions:
    """Thresholds from D_sup by the method's own rule, and the correctness curve counted on D_est, for this network.

    Only a method that keeps D_est from training can count on it; the others decide at 0.5 and carry no curve. So does a warm-up
    model decide: the thresholds belong to the main stage, and another rule must not train the warm-up again.

    Args:
        source: where the curve was counted instead of on D_est by this network.
    """
    method, roles = experiment.method, experiment.roles
    prior = prior_of(experiment.labels.of(roles.labelled).numpy())
    if stage == "warmup" and experiment.settings.recommends:
        return plain(prior, "no curve: the warm-up trains on all labelled images, the main stage measures; decisions at 0.5")
    if source is None and not isinstance(method, Calibrates):
        return plain(
            prior, f"no curve: {METHODS[experiment.settings.method].title} trains on all labelled images; decisions at 0.5"
        )
    source = source or CurveSource.on_est(experiment, network)
    curve, carried = source.curve, source.carried
    after = None if carried is None else _scores(experiment, network, carried.rows)
    if carried is not None and after is not None and len(after):
        curve = carry_over(curve, carried.scores, after)

    tau_pos = tau_neg = np.full(method.classes, 0.5)
    if stage != "warmup":
        thresholds = source.thresholds
        if thresholds is None:
            assert isinstance(method, Calibrates)
            y_sup = experiment.labels.of(roles.sup).to(experiment.runtime.device)
            thresholds = method.thresholds(experiment.predict(network, roles.sup), y_sup)
        pair = [tau.cpu().numpy() for tau in (thresholds.tau_pos, thresholds.tau_neg)]
        if source.thresholds is not None and carried is not None and after is not None:
            pair = [thresholds_at_equal_rank(tau, carried.scores.numpy(), after.numpy()) for tau in pair]
        active = thresholds.active.cpu().numpy()
        tau_pos, tau_neg = (np.where(active, tau, extreme) for tau, extreme in zip(pair, (1.0, 0.0), strict=True))
    f1_threshold = best_threshold(source.p.numpy(), source.y.numpy()) if carried is None else None
    at_rank = source.p if source.at_rank is None else source.at_rank
    # A fold's head that has seen hardly any positive ranks by chance.
    counted = torch.where((source.y > 0).sum(0) >= ENOUGH, at_rank, source.p)
    labelled = Labelled.of(source.curve.at(counted).numpy(), source.y.numpy())
    entries = int((source.y >= 0).sum())
    return Decisions(tau_pos, tau_neg, prior, curve, source.note, entries, f1_threshold, labelled)


def some_of(rows: np.ndarray, most: int, seed: int, stage: str) -> np.ndarray:
    """At most so many of the rows, drawn at random, ascending: those on which a curve is carried over."""
    return rows if len(rows) <= most else np.sort(rows[permutation(seed, stage, 0, len(rows), "carried")[:most]])


def prior_of(y: np.ndarray) -> np.ndarray:
    """(C,) share of positives of each class among the known entries of labels (n, C); 0 where none is known."""
    if (y >= 0).all():
        return y.mean(0)
    return (y > 0).sum(0) / np.maximum((y >= 0).sum(0), 1)


def thresholds_at_equal_rank(tau: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Thresholds (C,) or (C, m) of confidences `before` (n, C), at the confidences `after` (n, C) of equal rank in the class.

    Beyond the least and the largest confidence a threshold stays beyond: 0 stays 0, and 1 stays 1.
    """
    ends = np.array([0.0, 1.0])[:, None].repeat(len(tau), 1)
    x, y = (np.sort(np.concatenate([part, ends]).astype(np.float64), axis=0) for part in (before, after))
    return np.array([np.interp(tau[c], x[:, c], y[:, c]) for c in range(len(tau))])


def _scores(experiment: Experiment, network: nn.Module, rows: np.ndarray) -> Tensor:
    """(n, C) on the host, where a published model's curve is."""
    return experiment.predict(network, rows).cpu()
