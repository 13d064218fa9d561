"""The refresh of an epoch without its forward pass, against a loop over images and classes, in one run.

    python benchmarks/refresh.py [--images 82081] [--classes 80]

Ours: bins, rates, thresholds, pseudo-labels, weights and the Parquet file, by the functions that training calls, for every
image. The loop reads the paper's formulas one entry at a time with NumPy and writes the file with pandas; it is given
every n-th image (--share) and its seconds are multiplied by n, except for those of the rates and thresholds, which it computes in
full. Results are compared on these images. They take turns.

Writes benchmarks/results/refresh.json and ends with `refresh ratio=R target=20`, R: seconds of the loop over ours. Exits 1 if R
is below 20, if ours takes 2 s or more, or if the results differ.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
from common import Parser, finish

from dicap.calibration.rates import correctness_weight, count_bins, estimate_rates
from dicap.calibration.thresholds import PseudoLabels, dual_thresholds, hard_labels
from dicap.files.artifacts import epoch_file, read_pseudo_labels
from dicap.methods.base import Refresh
from dicap.training.records import record

TARGET, SECONDS, BINS = 20.0, 2.0, 20


def scores(images: int, classes: int) -> tuple[torch.Tensor, torch.Tensor, int, int]:
    """Scores (N, C) float32, labels (N, C) uint8, and how many of the first rows are D_sup and then D_est (5 %, split 80/20)."""
    generator = torch.Generator().manual_seed(0)
    p = torch.sigmoid(2 * torch.randn(images, classes, generator=generator) - 2)
    y = (torch.rand(images, classes, generator=generator) < p).to(torch.uint8)
    labelled = images // 20
    return p, y, int(0.8 * labelled), labelled - int(0.8 * labelled)


def ours(p, y, n_sup, n_est, ids, folder: Path):
    """What training does after the forward pass."""
    unsup, est = p[n_sup:], slice(n_sup, n_sup + n_est)
    rates = estimate_rates(*count_bins(p[est], y[est], BINS))
    thresholds = dual_thresholds(p[:n_sup], y[:n_sup])
    label = hard_labels(unsup, thresholds)
    weight = correctness_weight(unsup, label, rates)
    refresh = Refresh(PseudoLabels(unsup, label, weight), rates, thresholds)
    classes = [str(c) for c in range(p.shape[1])]
    record(refresh, folder, 0, ids=ids, classes=classes, optimal=without_hidden_labels)
    return label, weight, epoch_file(folder, "pseudo_labels", 0)


def without_hidden_labels(confidence: torch.Tensor, bins: int, *, per_class: bool = False) -> None:
    """What the pipeline knows of the true rates where nobody has hidden labels."""


def loop(p, y, n_sup, n_est, ids, rows, path: Path):
    """The same by the letter, for the images `rows` of D_unsup; seconds of what is done once, and labels and weights."""
    begin = time.perf_counter()
    p = p.astype(np.float64)
    n_pos, n_neg = np.zeros(BINS), np.zeros(BINS)
    for i in range(n_sup, n_sup + n_est):
        for c in range(p.shape[1]):
            k = min(int(p[i, c] * BINS), BINS - 1)
            if y[i, c]:
                n_pos[k] += 1
            else:
                n_neg[k] += 1
    r_pos = n_pos / (n_pos + n_neg + 1e-8)
    tau_pos, tau_neg = np.ones(p.shape[1]), np.zeros(p.shape[1])
    for c in range(p.shape[1]):
        positive = [p[i, c] for i in range(n_sup) if y[i, c]]
        negative = [p[i, c] for i in range(n_sup) if not y[i, c]]
        tau_pos[c], tau_neg[c] = (max(positive) + min(positive)) / 2, (max(negative) + min(negative)) / 2
        tau_pos[c], tau_neg[c] = max(tau_pos[c], tau_neg[c]), min(tau_pos[c], tau_neg[c])
    once = time.perf_counter() - begin
    records = []
    for i in rows:
        labels, weights = [], []
        for c in range(p.shape[1]):
            q = p[n_sup + i, c]
            label = 1 if q > tau_pos[c] else 0 if q < tau_neg[c] else -1
            k = min(int(q * BINS), BINS - 1)
            after = r_pos[min(k + 1, BINS - 1)]
            w = BINS * ((k + 1) / BINS - q) * r_pos[k] + BINS * (q - k / BINS) * after
            labels.append(label)
            weights.append(0.0 if label < 0 else w if label else 1 - w)
        records.append((ids[i], p[n_sup + i], labels, weights))
    pd.DataFrame(records, columns=["id", "confidence", "label", "weight"]).to_parquet(path)
    return once, np.array([r[2] for r in records]), np.array([r[3] for r in records])


def main() -> int:
    options = Parser(__doc__, "refresh", images=20_000, classes=20, share=500)
    options.add_argument("--images", type=int, default=82081)
    options.add_argument("--classes", type=int, default=80)
    options.add_argument("--share", type=int, default=50, help="the loop gets every so-manieth image")
    options = options.options()
    p, y, n_sup, n_est = scores(options.images, options.classes)
    n = len(p) - n_sup
    ids = np.array([f"train2014/COCO_train2014_{i:012d}.jpg" for i in range(n)], dtype=object)
    rows = np.arange(0, n, options.share)
    array, truth = p.numpy(), y.numpy()
    seconds: dict[str, list[float]] = {"ours": [], "loop": []}
    with tempfile.TemporaryDirectory() as place:
        ours(p[:200], y[:200], 80, 20, ids[:120], Path(place))  # libraries are loaded, threads exist
        for _ in range(options.rounds):
            begin = time.perf_counter()
            label, weight, path = ours(p, y, n_sup, n_est, ids, Path(place))
            seconds["ours"].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            once, slow_label, slow_weight = loop(array, truth, n_sup, n_est, ids, rows, Path(place) / "loop.parquet")
            took = time.perf_counter() - begin
            seconds["loop"].append(once + (took - once) * n / len(rows))
        size = path.stat().st_size
        _, written, _, _ = read_pseudo_labels(path)
    apart = float(np.abs(weight.numpy()[rows] - slow_weight).max())
    same = bool((label.numpy()[rows] == slow_label).all()) and apart < 1e-6
    same = same and bool((written == array[n_sup:]).all())
    ratio = statistics.median(b / a for a, b in zip(seconds["ours"], seconds["loop"], strict=True))
    median = statistics.median(seconds["ours"])
    print(f"{options.images} x {options.classes}: ours {median:.2f} s (best {min(seconds['ours']):.2f})", end=", ")
    print(f"the loop {statistics.median(seconds['loop']):.1f} s, weights differ by {apart:.1e}")
    result = {
        "images": options.images,
        "classes": options.classes,
        "share_of_loop": options.share,
        "seconds": {name: [round(value, 3) for value in values] for name, values in seconds.items()},
        "median_seconds": round(median, 3),
        "target_seconds": SECONDS,
        "weight_difference": apart,
        "file_mb": round(size / 1e6, 1),
    }
    return finish("refresh", result, ratio, TARGET, options, same=same, quick=median < SECONDS)


if __name__ == "__main__":
    sys.exit(main())
