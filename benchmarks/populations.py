"""Made-up populations in which unlabelled rows mislead, are of little use, or help."""

from typing import NamedTuple

import numpy as np

MISLEADING = ("other clusters", "another kind", "other shares", "neighbours")
ORDINARY = ("linear", "partly known", "frames")
HELPING = "clusters"


class Population(NamedTuple):
    """Rows (n, D) float32 and labels (n, C) float32, the labelled rows first, and as much of a test set."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    labelled: int


def draw(kind: str, seed: int) -> Population:
    """A population of 20 to 80 features and 3 to 9 classes, with 50 to 120 labelled and 300 to 800 unlabelled rows.

    Args:
        kind: `other clusters`: strong clusters that have nothing to do with the labels, which lie in weak directions; `another
            kind`: unlabelled rows are shifted and scaled, with other labels; `other shares`: unlabelled rows were drawn by their
            labels; `neighbours`: rows of a cluster are close, and the label goes against it; `linear`: labels are linear in the
            features, with noise; `partly known`: 40 % of the labelled rows' entries are unknown (-1) besides; `frames`: one or
            two rows of a scene are labelled and others of the same scene are not, of further scenes none; those of the test
            are new; `clusters`: a class is a union of clusters.
    """
    rng = np.random.default_rng([seed, sum(map(ord, kind))])
    labelled, unlabelled, tests = int(rng.integers(50, 120)), int(rng.integers(300, 800)), 600
    features, classes = int(rng.integers(20, 80)), int(rng.integers(3, 9))
    n, share = labelled + unlabelled + tests, rng.uniform(0.1, 0.4, classes)
    hidden = slice(labelled, labelled + unlabelled)

    def of(parts: np.ndarray) -> np.ndarray:
        mixed = parts @ rng.standard_normal((parts.shape[1], features)) / np.sqrt(parts.shape[1])
        return mixed + 0.3 * rng.standard_normal(mixed.shape)

    def labels(z: np.ndarray, noise: float) -> np.ndarray:
        z = z + noise * z.std(0) * rng.standard_normal(z.shape)
        return z > np.array([np.quantile(z[:, c], 1 - share[c]) for c in range(classes)])

    match kind:
        case "clusters":
            which = rng.integers(0, 12, n)
            own = rng.random((12, classes)) < share
            own[rng.integers(0, 12, classes), np.arange(classes)] = True
            y = own[which] ^ (rng.random((n, classes)) < 0.05)
            x = of(2 * rng.standard_normal((12, 10))[which] + 0.7 * rng.standard_normal((n, 10)))
        case "other clusters":
            part = rng.standard_normal((n, 6))
            clusters = 3 * rng.standard_normal((8, 10))[rng.integers(0, 8, n)] + 0.3 * rng.standard_normal((n, 10))
            y = labels(part @ rng.standard_normal((6, classes)), 0.4)
            x = of(np.concatenate([0.6 * part, clusters], axis=1))
        case "another kind":
            part = rng.standard_normal((n, 12))
            y = labels(part @ rng.standard_normal((12, classes)), 0.4)
            part[hidden] = part[hidden] * rng.uniform(0.5, 2, 12) + 2 * rng.standard_normal(12)
            x = of(part)
        case "other shares":
            part = rng.standard_normal((6 * n, 12))
            y = labels(part @ rng.standard_normal((12, classes)), 0.4)
            drawn = 1 / (1 + np.exp(-2 * (y @ rng.standard_normal(classes))))
            chosen = np.flatnonzero(rng.random(len(part)) < drawn)[:unlabelled]
            rest = np.setdiff1d(np.arange(len(part)), chosen)[: labelled + tests]
            order = np.concatenate([rest[:labelled], chosen, rest[labelled:]])
            x, y = of(part[order]), y[order]
            hidden = slice(labelled, labelled + len(chosen))
        case "linear" | "partly known":
            part = rng.standard_normal((n, 12))
            y, x = labels(part @ rng.standard_normal((12, classes)), 0.4), of(part)
            if kind == "partly known":
                y = np.where((np.arange(n)[:, None] < labelled) & (rng.random(y.shape) < 0.4), -1, y)
        case "frames":
            shown, frames = int(rng.integers(1, 3)), int(rng.integers(2, 15))  # labelled and unlabelled ones of a scene
            own, scenes = labelled // shown, labelled // shown + int(rng.integers(0, 100))
            part = rng.standard_normal((scenes + tests, 12))
            y, x = labels(part @ rng.standard_normal((12, classes)), rng.uniform(0.4, 1)), of(part)
            which = np.concatenate([np.repeat(np.arange(own), shown), np.repeat(np.arange(scenes), frames)])
            which, labelled = np.concatenate([which, np.arange(scenes, len(x))]), own * shown
            y, x = y[which], x[which] + rng.uniform(0.1, 0.4) * rng.standard_normal((len(which), features))
            hidden = slice(labelled, len(which) - tests)
        case "neighbours":
            which, part, centres = rng.integers(0, 30, n), rng.standard_normal((n, 8)), 3 * rng.standard_normal((30, 8))
            against = 0.3 * (centres @ rng.standard_normal((8, classes)))[which]
            y = labels(part @ rng.standard_normal((8, classes)) - against, 0.3)
            x = of(np.concatenate([part + centres[which], centres[which]], axis=1))
        case _:
            raise KeyError(kind)
    x, y, end = x.astype(np.float32), y.astype(np.float32), hidden.stop
    return Population(x[:end], y[:end], x[end:], y[end:], labelled)
