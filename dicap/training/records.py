"""The Parquet record of an epoch's pseudo-labels: weights, thresholds, labels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from dicap.calibration.rates import Rates
from dicap.files.artifacts import write_epoch
from dicap.files.tables import lists
from dicap.methods.base import Refresh

# (confidences (N, C), K) -> the true rate and the number of entries of every bin, (K,) each; None without hidden labels.
Optimal = Callable[[Tensor, int], tuple[Tensor, Tensor] | None]  # see Diagnostics.optimal


def record(refresh: Refresh, folder: Path, epoch: int, *, ids: np.ndarray, classes: list[str], optimal: Optimal) -> None:
    """Write `<folder>/{weights,thresholds,pseudo_labels}/epoch-NNN.parquet`, the first two only if the method has them."""
    pseudo, rates, thresholds = refresh.pseudo, refresh.rates, refresh.thresholds
    if rates is not None:
        write_epoch(_weights(rates.cpu(), optimal(pseudo.confidence, len(rates.r_pos))), folder, "weights", epoch)
    if thresholds is not None:
        names = ("tau_pos", "tau_neg", "n_pos", "n_neg", "crossed")
        columns = {"class": classes} | {name: getattr(thresholds, name).cpu().numpy() for name in names}
        write_epoch(columns, folder, "thresholds", epoch)
    tables = {name: lists(getattr(pseudo, name).cpu().numpy()) for name in ("confidence", "label", "weight")}
    write_epoch({"id": ids, **tables}, folder, "pseudo_labels", epoch)


def _weights(rates: Rates, optimal: tuple[Tensor, Tensor] | None) -> dict[str, Any]:
    """Columns of the weights table, one row per bin."""
    bins = len(rates.r_pos)
    k = np.arange(bins)
    true, entries = (None, None) if optimal is None else (optimal[0].cpu().numpy(), optimal[1].long().cpu().numpy())
    return {
        "bin": k,
        "left": k / bins,
        "right": (k + 1) / bins,
        "n_pos": rates.n_pos.long().numpy(),
        "n_neg": rates.n_neg.long().numpy(),
        "r_pos": rates.r_pos.numpy(),
        "r_neg": rates.r_neg.numpy(),
        "optimal_r_pos": pa.nulls(bins) if true is None else pa.array(true, from_pandas=True),  # a null for NaN
        "optimal_n": pa.nulls(bins) if entries is None else entries,
    }
