"""The Parquet record of an epoch's pseudo-labels: weights, thresholds, labels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from dicap.calibration.rates import Rates
from dicap.files.artifacts import write_pseudo_labels, write_thresholds, write_weights
from dicap.methods.base import Phase, Refresh
from dicap.training.diagnostics import Diagnostics
from dicap.training.experiment import Experiment

# (N, C) confidences and K -> the true rate and the number of entries of every bin, (K,) each; None without hidden labels.
Optimal = Callable[[Tensor, int], tuple[Tensor, Tensor] | None]  # see Diagnostics.optimal


def record(refresh: Refresh, folder: Path, epoch: int, *, ids: np.ndarray, classes: list[str], optimal: Optimal) -> None:
    """Write `<folder>/{weights,thresholds,pseudo_labels}/epoch-NNN.parquet` for what the method has."""
    pseudo = refresh.pseudo
    if refresh.rates is not None:
        write_weights(_weights(refresh.rates, optimal(pseudo.confidence, len(refresh.rates.r_pos))), folder, epoch)
    if refresh.thresholds is not None:
        t = refresh.thresholds
        columns = {"class": classes} | {
            name: getattr(t, name).cpu().numpy() for name in ("tau_pos", "tau_neg", "n_pos", "n_neg", "crossed")
        }
        write_thresholds(columns, folder, epoch)
    confidence, label, weight = (tensor.cpu().numpy() for tensor in (pseudo.confidence, pseudo.label, pseudo.weight))
    write_pseudo_labels(ids, confidence, label, weight, folder, epoch)


def record_first(experiment: Experiment, refresh: Refresh, phase: Phase, folder: Path) -> dict[str, float]:
    """Write the refresh of a first epoch under `folder`, with what hidden labels say of it; returns the shares of its labels."""
    diagnostics, store = Diagnostics.of(experiment, phase.unlabelled), experiment.store
    record(refresh, folder, 0, ids=store.ids[phase.unlabelled], classes=store.classes, optimal=diagnostics.optimal)
    return diagnostics.summary(refresh)


def _weights(rates: Rates, optimal: tuple[Tensor, Tensor] | None) -> dict[str, Any]:
    bins = len(rates.r_pos)
    k = np.arange(bins)
    columns: dict[str, Any] = {"bin": k, "left": k / bins, "right": (k + 1) / bins}
    for name in ("n_pos", "n_neg"):
        columns[name] = getattr(rates, name).cpu().numpy().astype(np.int64)
    for name in ("r_pos", "r_neg"):
        columns[name] = getattr(rates, name).cpu().numpy()
    columns["optimal_r_pos"], columns["optimal_n"] = [None] * bins, [None] * bins
    if optimal is not None:
        columns["optimal_r_pos"], columns["optimal_n"] = optimal[0].cpu().numpy(), optimal[1].cpu().numpy().astype(np.int64)
    return columns
