"""By how much one row of a table beats another, seed by seed: both runs of a pair share the split and the initialisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Gain:
    """Mean of the seeds' differences, half the width of its 95 % interval (None for one seed), the number of seeds."""

    mean: float
    half: float | None
    n: int


def gain(ours: pd.Series, theirs: pd.Series) -> Gain | None:
    """Ours minus theirs over the seeds that both have; None without any.

    Args:
        ours, theirs: a value (mAP in %) per seed, the seeds as index.

    The interval is Student's: the differences of a few trainings say little, and it says how little.
    """
    from scipy.stats import t

    difference = (ours - theirs).dropna().to_numpy(dtype=float)
    n = len(difference)
    if n == 0:
        return None
    half = float(t.ppf(0.975, n - 1) * difference.std(ddof=1) / np.sqrt(n)) if n > 1 else None
    return Gain(float(difference.mean()), half, n)
