"""Estimates how many photographs of a folder show each class, from predicted chances and out-of-fold errors. Pure functions.

This is prediction-powered inference (Angelopoulos et al., Science 2023) with cross-prediction (Zrnic and Candès, PNAS 2024).
A chance is a calibrated probability. n labelled images have labels y and out-of-fold chances f; the folder's N images have
chances F. Both sets of images are drawn from the same distribution. The estimate for the folder is

    share = mean(y) + s (mean(F) - mean(f)),    s = slope of y on f,

with the slope s that minimises its error ("power-tuned"); s = 0 would use the labels alone. Its error has the variance
(1 - r^2) p (1 - p) (1/n + 1/N), where r is the correlation of y and f. n_eff = 1 / ((1 - r^2) (1/n + 1/N)) labelled images would
have the same error, so the interval is Wilson's for n_eff images. (A normal interval has width 0 without positive labels, and
is too narrow with few.) Slope and r^2 are estimates too. With k positives they are shrunk by the factors k / (k + 2) and
(k - 1) / (k + 1), which benchmarks/counts.py chose. For a class with ENOUGH positives the out-of-fold scores are first mapped to
the scale of the head in use (`dicap.frozen.crossfit.at_rank`). Otherwise a head with more extreme scores looks like a shift.

Letters: C classes; all arrays (C,).
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dicap.metrics.operating_point import Z, wilson

ALARM = 0.05  # false alarm rate: how often any class is reported as shifted in a folder from the same distribution
ENOUGH = 5  # labelled images with the class, and without it, that estimate the distribution of their chances


class Moments(NamedTuple):
    """Number of images, and mean and variance of their chances, per class; 0 for a class without images."""

    images: NDArray
    mean: NDArray
    variance: NDArray

    @staticmethod
    def of(chances: NDArray, counted: NDArray | None = None) -> "Moments":
        """The moments of chances (n, C), over the entries where `counted` (n, C) is true; None: over all entries."""
        weight = np.ones(chances.shape) if counted is None else counted.astype(np.float64)
        images = weight.sum(0)
        divisor = np.maximum(images, 1)
        mean = (weight * chances).sum(0) / divisor
        return Moments(images, mean, (weight * (chances - mean) ** 2).sum(0) / divisor)

    def __add__(self, other: "Moments") -> "Moments":  # type: ignore[override]
        """The moments of both sets of images together."""
        images = self.images + other.images
        share = other.images / np.maximum(images, 1)
        between = share * (1 - share) * (other.mean - self.mean) ** 2
        mean = self.mean + share * (other.mean - self.mean)
        return Moments(images, mean, (1 - share) * self.variance + share * other.variance + between)


class Labelled(NamedTuple):
    """Moments of the out-of-fold chances of labelled images with a class, and of labelled images without it."""

    present: Moments
    absent: Moments

    @staticmethod
    def of(chances: NDArray, labels: NDArray) -> "Labelled":
        """The moments by labels (n, C): 1, 0, or below 0 for unknown."""
        return Labelled(Moments.of(chances, labels > 0), Moments.of(chances, labels == 0))


@dataclass(frozen=True)
class Counts:
    """Numbers of photographs of a folder that show each class.

    Attributes:
        count: the estimate; low, high: its 95 % interval.
        shifted: at least ENOUGH labelled images show the class, and the chances of the folder's photographs are distributed
            differently from the chances of the labelled images.
        by_shift: the estimate under label shift: images of a class look the same, its share has changed; low and high likewise.
            NaN if fewer than ENOUGH labelled images show the class, or if the chances do not separate it.
    """

    count: NDArray
    low: NDArray
    high: NDArray
    shifted: NDArray
    by_shift: NDArray
    shift_low: NDArray
    shift_high: NDArray


def counts(labelled: Labelled, folder: Moments) -> Counts:
    """The counts of a folder. For a class without known labels the interval is the whole folder."""
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

    # With fewer than ENOUGH positives some fold's head saw no positive, and its scores for the class mean nothing.
    # A mean of few chances is skewed, at most as much as a binomial share: the second term (Cornish and Fisher, 1938).
    error = np.sqrt((both + folder).variance * (1 / size + 1 / n))
    z = NormalDist().inv_cdf(1 - ALARM / 2 / len(k))
    shifted = np.abs(folder.mean - both.mean) > z * np.maximum(error, 1e-12) + z**2 / 6 * np.abs(1 - 2 * both.mean) / size
    low, high = np.floor(low * size + 1e-9), np.ceil(high * size - 1e-9)
    by_shift, shift_low, shift_high = (part * size for part in _by_shift(present, absent, folder))
    return Counts(estimate * size, low, high, (k >= ENOUGH) & shifted, by_shift, shift_low, shift_high)


def _by_shift(present: Moments, absent: Moments, folder: Moments) -> tuple[NDArray, NDArray, NDArray]:
    """The share of the class under label shift, and its 95 % interval.

    A mixture with this share has the folder's mean chance: black-box shift estimation (Lipton et al., ICML 2018) on chances.
    """
    gap = present.mean - absent.mean
    var_present, var_absent = (moments.variance / np.maximum(moments.images - 1, 1) for moments in (present, absent))
    separable = (present.images >= ENOUGH) & (absent.images >= ENOUGH) & (gap > Z * np.sqrt(var_present + var_absent))
    gap = np.where(separable, gap, np.nan)
    share = np.clip((folder.mean - absent.mean) / gap, 0, 1)
    var_folder = (share * present.variance + (1 - share) * absent.variance) / folder.images
    half_width = Z * np.sqrt(var_folder + share**2 * var_present + (1 - share) ** 2 * var_absent) / gap
    return share, np.clip(share - half_width, 0, 1), np.clip(share + half_width, 0, 1)
