"""Quality of the pseudo-labels by hidden labels, for history and report only. Training never reads these numbers.

This module opens its own reader of hidden labels; methods and loops have none.
"""

import math

import numpy as np
import torch
from torch import Tensor

from dicap.calibration.rates import Rates, count_bins, curve_error, estimate_rates, surprisals
from dicap.calibration.thresholds import PseudoLabels
from dicap.methods.base import Refresh
from dicap.metrics.ranking import mean_average_precision
from dicap.settings.catalogue import OWN
from dicap.training.experiment import Experiment
from dicap.training.hidden import HiddenLabelReader


def map_of_scores(experiment: Experiment, scores: dict[str, Tensor]) -> dict[str, float]:
    """mAP of scores (n, C) of the test images, {"map_<name>": percent}."""
    y = HiddenLabelReader(experiment.folder).labels(experiment.roles.test)[0].numpy()
    testable = experiment.settings.dataset == OWN
    return {f"map_{name}": mean_average_precision(p.cpu().numpy(), y, testable=testable) for name, p in scores.items()}


class Diagnostics:
    """Compares pseudo-labels with hidden labels."""

    def __init__(self, experiment: Experiment, rows: np.ndarray) -> None:
        """`rows`: the images with pseudo-labels. Only D_u is compared; labels of D_est are not hidden."""
        y, known = HiddenLabelReader(experiment.folder).labels(rows)  # (N_u, C), -1 if unknown, and (N_u,)
        self._hidden = known & torch.from_numpy(~np.isin(rows, experiment.roles.est))
        self._y, self._bins = y[self._hidden], experiment.settings.calibration.bins

    def _compared(self, tensor: Tensor) -> Tensor:
        """The rows of a tensor (N_u, C) whose labels are compared, on the CPU."""
        return tensor.cpu()[self._hidden]

    def optimal(self, p: Tensor, bins: int) -> tuple[Tensor, Tensor] | None:
        """The true rate and the number of entries of every bin, (K,) each; None without hidden labels.

        The rate of a bin without entries is NaN.
        """
        if not self._hidden.any():
            return None
        n_pos, n_neg = count_bins(self._compared(p), self._y, bins)
        return n_pos / (n_pos + n_neg), n_pos + n_neg

    def summary(self, refresh: Refresh) -> dict[str, float]:
        """Shares of confident and uncertain entries, mean weights, true precision of the labels, error of the estimated curve."""
        pseudo = refresh.pseudo
        row = {
            f"share_{name}": _share(int((pseudo.label == value).sum()), pseudo.label.numel())
            for name, value in (("pos", 1), ("neg", 0), ("uncertain", -1))
        }
        row["n_crossed"] = 0 if refresh.thresholds is None else int(refresh.thresholds.crossed.sum())
        row["n_guarded"] = 0 if refresh.guarded is None else int(refresh.guarded)
        row["weight_pos"], row["weight_pos_sd"] = _mean_and_deviation(pseudo, 1)
        row["weight_neg"], _ = _mean_and_deviation(pseudo, 0)
        if refresh.rates is not None:
            row |= self._of_curve(pseudo.confidence, refresh.rates.cpu())
        if self._hidden.any():
            label, known = self._compared(pseudo.label), self._y >= 0
            for name, value in (("precision_pos", 1), ("precision_neg", 0)):
                chosen = (label == value) & known
                row[name] = _share(int((chosen & (self._y == value)).sum()), int(chosen.sum()))
        return row

    def _of_curve(self, p: Tensor, rates: Rates) -> dict[str, float]:
        """How far the estimated rates are from the true rates, by hidden labels; NaN without hidden labels."""
        if not self._hidden.any():
            return dict.fromkeys(("curve_error", "log_loss", "excess_log_loss"), math.nan)
        p, y = self._compared(p), self._y
        n_pos, n_neg = count_bins(p, y, self._bins)
        entries = int((y >= 0).sum()) or math.nan
        true_rates = estimate_rates(n_pos, n_neg, anchor="centre")
        log_loss, best_log_loss = (float(surprisals(curve.at(p), y).sum()) / entries for curve in (rates, true_rates))
        error = curve_error(rates.r_pos, estimate_rates(n_pos, n_neg).r_pos, n_pos + n_neg)
        return {"curve_error": error, "log_loss": log_loss, "excess_log_loss": log_loss - best_log_loss}


def _mean_and_deviation(pseudo: PseudoLabels, label: int) -> tuple[float, float]:
    """Mean and standard deviation of the weights of entries with this pseudo-label, in double precision; NaN without entries."""
    chosen, weight = pseudo.label == label, pseudo.weight.double()
    entries = float(chosen.sum())
    if not entries:
        return math.nan, math.nan
    mean = float((weight * chosen).sum()) / entries
    return mean, math.sqrt(float(((weight - mean).square() * chosen).sum()) / entries)


def _share(part: int, whole: int) -> float:
    """part / whole rounded to float32, like a mean of float32 numbers; NaN if whole is 0."""
    return float(np.float32(part / whole)) if whole else math.nan
