"""What hidden labels tell about the pseudo-labels. Read by history and report, never by training.

They open a reader of their own: neither the methods nor the loops hold one. Of many images they are counted block by block."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from dicap.calibration.rates import Rates, count_bins, curve_error, estimate_rates, log_losses, pieces
from dicap.calibration.thresholds import PseudoLabels
from dicap.methods.base import Refresh
from dicap.metrics.ranking import mean_average_precision
from dicap.settings.catalogue import OWN
from dicap.training.experiment import Experiment
from dicap.training.hidden import HiddenLabelReader


def map_of_scores(experiment: Experiment, scores: dict[str, Tensor]) -> dict[str, float]:
    """mAP of scores (n, C) of the test images, {"map_<name>": percent}."""
    y = _reader(experiment).labels(experiment.roles.test)[0].numpy()
    own = experiment.settings.dataset == OWN
    return {f"map_{name}": mean_average_precision(p.cpu().numpy(), y, testable=own) for name, p in scores.items()}


def _reader(experiment: Experiment) -> HiddenLabelReader:
    return HiddenLabelReader(experiment.folder, len(experiment.store.classes))


class Diagnostics:
    """Hidden labels of the images that get pseudo-labels."""

    def __init__(self, y: Tensor, truly: Tensor, bins: int) -> None:
        """`y`: (N_u, C) labels, -1 where unknown; `truly`: (N_u,) bool, the images that are compared; `bins`: K."""
        self._y, self._truly, self._bins = y, truly, bins

    @staticmethod
    def of(experiment: Experiment, rows: np.ndarray) -> "Diagnostics":
        """Of the images `rows`. Those are compared whose labels nobody may count: D_u without D_est."""
        y, known = _reader(experiment).labels(rows)
        free = torch.from_numpy(~np.isin(rows, experiment.roles.est))
        return Diagnostics(y, known & free, experiment.settings.calibration.bins)

    def optimal(self, p: Tensor, bins: int) -> tuple[Tensor, Tensor] | None:
        """The true rate and the number of entries of every bin, (K,) each; None without hidden labels.

        The rate of a bin without entries is NaN: nothing is true of it.
        """
        counts = self._counted(p, bins)
        return None if counts is None else (counts[0] / (counts[0] + counts[1]), counts[0] + counts[1])

    def summary(self, refresh: Refresh) -> dict[str, float]:
        """Shares of confident and uncertain entries, weights, true precision of the labels, error of the estimated curve."""
        pseudo = refresh.pseudo
        numbers = {
            value: sum(int((pseudo.label[block] == value).sum()) for block in pieces(pseudo.label)) for value in (1, 0, -1)
        }
        row = {
            "share_pos": _share(numbers[1], pseudo.label.numel()),
            "share_neg": _share(numbers[0], pseudo.label.numel()),
            "share_uncertain": _share(numbers[-1], pseudo.label.numel()),
            "n_crossed": 0 if refresh.crossed is None else int(refresh.crossed),
            "n_guarded": 0 if refresh.guarded is None else int(refresh.guarded),
        }
        row["weight_pos"], row["weight_pos_sd"] = _mean_and_deviation(pseudo, 1)
        row["weight_neg"], _ = _mean_and_deviation(pseudo, 0)
        if refresh.rates is not None:
            estimated, counts = refresh.rates.cpu(), self._counted(pseudo.confidence, self._bins)
            row["curve_error"] = row["log_loss"] = row["excess_log_loss"] = math.nan
            if counts is not None:
                row["curve_error"] = curve_error(estimated.r_pos, estimate_rates(*counts).r_pos, counts[0] + counts[1])
                stated, best = self._log_losses(pseudo.confidence, estimated, estimate_rates(*counts, anchor="centre"))
                row["log_loss"], row["excess_log_loss"] = stated, stated - best
        if self._truly.any():
            chosen, right = {1: 0, 0: 0}, {1: 0, 0: 0}
            for label, y in self._compared(pseudo.label):
                for value in chosen:
                    chosen[value] += int(((label == value) & (y >= 0)).sum())
                    right[value] += int(((label == value) & (y == value)).sum())
            row["precision_pos"], row["precision_neg"] = (_share(right[value], chosen[value]) for value in (1, 0))
        return row

    def _counted(self, p: Tensor, bins: int) -> tuple[Tensor, Tensor] | None:
        """n_pos and n_neg of every bin by the hidden labels, see `count_bins`; None without such labels."""
        counts = [count_bins(part, y, bins) for part, y in self._compared(p)]
        if not counts:
            return None
        n_pos, n_neg = (torch.stack(parts).sum(0) for parts in zip(*counts, strict=True))
        return n_pos, n_neg

    def _log_losses(self, p: Tensor, *curves: Rates) -> list[float]:
        """Mean log loss of each curve's rates on the hidden labels; NaN without known entries."""
        totals, entries = [0.0] * len(curves), 0
        for part, y in self._compared(p):
            for i, curve in enumerate(curves):
                totals[i] += float(log_losses(curve.at(part), y).sum())
            entries += int((y >= 0).sum())
        return [total / entries if entries else math.nan for total in totals]

    def _compared(self, tensor: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Of a tensor (N_u, C), block by block on the host: the rows whose labels are compared, and these labels, (n, C) each."""
        for block in pieces(tensor):
            truly = self._truly[block]
            if truly.any():
                yield tensor[block].cpu()[truly], self._y[block][truly]


def _mean_and_deviation(pseudo: PseudoLabels, label: int) -> tuple[float, float]:
    """Of the weights of the entries with a label, in double precision; NaN where there are none."""

    def total(of: Callable[[Tensor], Tensor]) -> float:
        blocks = pieces(pseudo.label)
        return sum(float((of(pseudo.weight[block].double()) * (pseudo.label[block] == label)).sum()) for block in blocks)

    entries = total(torch.ones_like)
    if not entries:
        return math.nan, math.nan
    mean = total(lambda weight: weight) / entries
    return mean, math.sqrt(total(lambda weight: (weight - mean).square()) / entries)


def _share(part: int, of: int) -> float:
    """In single precision, as the mean of so many float32 numbers; NaN of nothing."""
    return float(np.float32(part / of)) if of else math.nan
