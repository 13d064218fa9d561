"""How many photographs of a folder show each class: the model's chances, corrected by its out-of-fold errors. Pure functions.

Prediction-powered inference (Angelopoulos et al., Science 2023) with cross-prediction (Zrnic and Candès, PNAS 2024): of n
labelled images with labels y and out-of-fold chances f, drawn from the same photographs as the folder of N with chances F,

    share = mean(y) + s (mean(F) - mean(f)),    s = slope of y on f,

the difference estimator with the weight that makes its error least ("power-tuned"): s = 0 leaves the labels alone. The error of
the folder's own share has variance (1 - r^2) p (1 - p) (1/n + 1/N), r the correlation of y and f: that of as many labelled images
as n_eff = 1 / ((1 - r^2) (1/n + 1/N)). So the interval is Wilson's for the share with n_eff images: a normal interval has no
width where no label is positive, and too little of it where few are. Slope and r^2 are estimates: with k positives they are
taken k / (k + 2) and (k - 1) / (k + 1) times, which benchmarks/counts.py chose. For a class with ENOUGH positives out-of-fold
scores are brought to the scale of the head in use first (`dicap.frozen.crossfit.at_rank`): where its chances spread
more than theirs, a folder of like photographs would look unlike them.

Letters: C classes; all arrays (C,).
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dicap.metrics.operating_point import Z, wilson

ALARM = 0.05  # chance that of a folder of like photographs any class is said to differ
ENOUGH = 5  # labelled images with the class, and without, to know how the chances of such images are spread


class Moments(NamedTuple):
    """Number of images, mean and variance of their chances, class by class; 0 where there is no image."""

    images: NDArray
    mean: NDArray
    variance: NDArray

    @staticmethod
    def of(chances: NDArray, counted: NDArray | None = None) -> "Moments":
        """The moments of chances (n, C), over the entries that `counted` (n, C) names; None: over all."""
        weight = np.ones(chances.shape) if counted is None else counted.astype(np.float64)
        images = weight.sum(0)
        some = np.maximum(images, 1)
        mean = (weight * chances).sum(0) / some
        return Moments(images, mean, (weight * (chances - mean) ** 2).sum(0) / some)

    def __add__(self, other: "Moments") -> "Moments":  # type: ignore[override]
        """The moments of both sets of images together."""
        images = self.images + other.images
        share = other.images / np.maximum(images, 1)
        between = share * (1 - share) * (other.mean - self.mean) ** 2
        mean = self.mean + share * (other.mean - self.mean)
        return Moments(images, mean, (1 - share) * self.variance + share * other.variance + between)


class Labelled(NamedTuple):
    """Moments of the out-of-fold chances of the labelled images that show a class, and of those that do not."""

    present: Moments
    absent: Moments

    @staticmethod
    def of(chances: NDArray, labels: NDArray) -> "Labelled":
        """The moments by labels (n, C): 1, 0, or below 0 for unknown."""
        return Labelled(Moments.of(chances, labels > 0), Moments.of(chances, labels == 0))


@dataclass(frozen=True)
class Counts:
    """Photographs of a folder that show each class.

    Attributes:
        count: the estimate; low, high: its 95 % interval.
        shifted: the chances of the folder's photographs are others than those of the labelled ones, of which at least ENOUGH show
            the class.
        by_shift: the estimate if images that show a class still look alike, but their share has changed; low and high likewise.
            NaN where fewer than ENOUGH labelled images show the class, or the chances do not tell it.
    """

    count: NDArray
    low: NDArray
    high: NDArray
    shifted: NDArray
    by_shift: NDArray
    shift_low: NDArray
    shift_high: NDArray


def counts(labelled: Labelled, folder: Moments) -> Counts:
    """The counts of a folder; of a class without a known label the interval is the whole folder."""
    present, absent = labelled
    k, both, size = present.images, present + absent, folder.images
    n = np.maximum(both.images, 1)
    share = k / n
    covariance = share * (1 - share) * (present.mean - absent.mean)
    variance = np.maximum(both.variance, 1e-12)
    slope = np.maximum(covariance / variance, 0) * k / (k + 2)
    explained = (2 * slope * covariance - slope**2 * variance) / np.maximum(share * (1 - share), 1e-12)
    explained = np.clip(explained, 0, 1) * np.maximum(k - 1, 0) / (k + 1)
    estimate = np.clip(share + slope * (folder.mean - both.mean), 0, 1)
    low, high = wilson(estimate, 1 / ((1 - explained) * (1 / n + 1 / size)))
    unknown = both.images == 0
    low, high = np.where(unknown, 0, low), np.where(unknown, 1, high)

    # Fewer than ENOUGH positives are not in all folds, and what a head says that has seen none is no measure.
    # A mean of few chances is skewed, at most as that of yes and no: the second term (Cornish and Fisher, 1938).
    error = np.sqrt((both + folder).variance * (1 / size + 1 / n))
    z = NormalDist().inv_cdf(1 - ALARM / 2 / len(k))
    apart = np.abs(folder.mean - both.mean) > z * np.maximum(error, 1e-12) + z**2 / 6 * np.abs(1 - 2 * both.mean) / size
    low, high = np.floor(low * size + 1e-9), np.ceil(high * size - 1e-9)
    by_shift, shift_low, shift_high = (part * size for part in _by_shift(present, absent, folder))
    return Counts(estimate * size, low, high, (k >= ENOUGH) & apart, by_shift, shift_low, shift_high)


def _by_shift(present: Moments, absent: Moments, folder: Moments) -> tuple[NDArray, NDArray, NDArray]:
    """The share that mixes the chances of images with and without the class to the folder's mean, and its 95 % interval.

    Black-box shift estimation (Lipton, Wang and Smola, ICML 2018) by chances instead of decisions; the interval is normal.
    """
    apart = present.mean - absent.mean
    of_present, of_absent = (moments.variance / np.maximum(moments.images - 1, 1) for moments in (present, absent))
    separable = (present.images >= ENOUGH) & (absent.images >= ENOUGH) & (apart > Z * np.sqrt(of_present + of_absent))
    apart = np.where(separable, apart, np.nan)
    share = np.clip((folder.mean - absent.mean) / apart, 0, 1)
    of_folder = (share * present.variance + (1 - share) * absent.variance) / folder.images
    half = Z * np.sqrt(of_folder + share**2 * of_present + (1 - share) ** 2 * of_absent) / apart
    return share, np.clip(share - half, 0, 1), np.clip(share + half, 0, 1)
