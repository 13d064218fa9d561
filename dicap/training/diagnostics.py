"""What hidden labels tell about the pseudo-labels. Read by history and report, never by training.

They open a reader of their own: neither the methods nor the loops hold one."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from dicap.calibration import bin_curve, count_bins, curve_error, estimate_rates, pooled
from dicap.catalogue import OWN
from dicap.curve import Curve
from dicap.estimators import log_loss
from dicap.methods.base import Refresh
from dicap.metrics import mean_average_precision
from dicap.training.experiment import Experiment
from dicap.training.hidden import HiddenLabelReader


def map_on_test(experiment: Experiment, networks: dict[str, nn.Module]) -> dict[str, float]:
    """mAP on the test images of each network, {"map_<name>": percent}; of several processes one has it."""
    return map_of_scores(
        experiment, {name: experiment.predict(network, experiment.roles.test) for name, network in networks.items()}
    )


def map_of_scores(experiment: Experiment, scores: dict[str, Tensor]) -> dict[str, float]:
    """mAP of scores (n, C) of the test images, {"map_<name>": percent}; of several processes one has it."""
    if not experiment.group.is_main:
        return {}
    y = _reader(experiment).labels(experiment.roles.test)[0].numpy()
    own = experiment.settings.dataset == OWN
    return {f"map_{name}": mean_average_precision(p.cpu().numpy(), y, testable=own) for name, p in scores.items()}


def _reader(experiment: Experiment) -> HiddenLabelReader:
    return HiddenLabelReader(experiment.folder, len(experiment.store.classes))


class Diagnostics:
    """Hidden labels of the images that get pseudo-labels, `rows`."""

    def __init__(self, experiment: Experiment, rows: np.ndarray) -> None:
        self._y, self._known = _reader(experiment).labels(rows)  # (N_u, C), (N_u,)
        self._bins = experiment.settings.calibration.bins
        # The optimal curve is of the images whose labels nobody may count: D_u without D_est.
        self._truly = self._known & torch.from_numpy(~np.isin(rows, experiment.roles.est))

    def optimal(self, p: Tensor, bins: int, *, per_class: bool = False) -> tuple[Tensor, Tensor] | None:
        """The true rate and the number of entries of every bin, (K,) or (C, K) each; None without hidden labels."""
        if not self._truly.any():
            return None
        n_pos, n_neg = count_bins(p.cpu()[self._truly], self._y[self._truly], bins, per_class=per_class)
        return estimate_rates(n_pos, n_neg).r_pos, n_pos + n_neg

    def excess(self, p: Tensor, estimated: Curve, bins: int) -> float:
        """Mean log loss of the estimated rates on the hidden labels minus that of the optimal curve; NaN without such labels."""
        optimal = self.optimal(p, bins)
        if optimal is None:
            return math.nan
        p, y = p[self._truly], self._y[self._truly]
        return log_loss(estimated.at(p), y) - log_loss(bin_curve(optimal[0], anchor="centre").at(p), y)

    def summary(self, refresh: Refresh) -> dict[str, float]:
        """Shares of confident and uncertain entries, true precision of the labels, error of the estimated curve."""
        label = refresh.pseudo.label.cpu()
        row = {
            "share_pos": float((label == 1).float().mean()),
            "share_neg": float((label == 0).float().mean()),
            "share_uncertain": float((label == -1).float().mean()),
            "n_crossed": refresh.crossed,
            "n_guarded": refresh.guarded,
        }
        if refresh.rates is not None:
            estimated = refresh.rates.r_pos.cpu()
            optimal = self.optimal(refresh.pseudo.confidence, self._bins, per_class=estimated.ndim == 2)
            row["curve_error"] = curve_error(*pooled(estimated, *optimal)) if optimal else math.nan
            curve = refresh.rates.curve.to("cpu")
            row["excess_log_loss"] = self.excess(refresh.pseudo.confidence.cpu(), curve, self._bins)
        if self._truly.any():
            label, y = label[self._truly], self._y[self._truly]
            for name, value in (("precision_pos", 1), ("precision_neg", 0)):
                chosen = (label == value) & (y >= 0)
                row[name] = float((y[chosen] == value).float().mean()) if chosen.any() else math.nan
        return row
