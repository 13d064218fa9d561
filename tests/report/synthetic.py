"""A made-up run: artifacts as the stages write them, of scores and labels that were drawn here."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dicap.calibration.rates import correctness_weight, count_bins, estimate_rates
from dicap.calibration.thresholds import PseudoLabels, dual_thresholds, hard_labels
from dicap.evaluation.evaluate import metrics
from dicap.files import artifacts as files
from dicap.files.json_files import write_json
from dicap.methods.base import Refresh
from dicap.metrics.ranking import average_precision
from dicap.training.records import record

SETTINGS: dict[str, Any] = {
    "dataset": "digits",
    "data_root": "data/raw",
    "ratio": 0.05,
    "seed": 1,
    "protocol": "published",
    "method": "dicap",
    "backbone": "resnet18",
    "head": "ml_decoder",
    "image_size": 64,
    "calibration": {"policy": "estimated"},
    "train": {"epochs": 6, "batch_size": 64},
    "optimiser": {"lr": 3e-05, "ema_decay": 0.9997},
    "finetune": {"enabled": True},
}
ENVIRONMENT = {"python": "3.11", "torch": "2.14.1", "device": "cpu"}
EVIL = "<script>alert(1)</script>"
# Names with what breaks carelessly written pages: markup, a formula, quotes, another script, great length.
CLASSES = [EVIL, '$x_{1$ & "quotes"', "a very long name of a class that fits beside no axis at all", "naïve 海", "one", "two"]


def write_run(folder: Path, *, images: int = 60, epochs: int = 6, pseudo: bool = True, hidden: bool = True) -> Path:
    """Write a whole artifacts folder; `hidden=False` as for a data set without hidden labels. Returns `folder`."""
    rng, names = np.random.default_rng(0), CLASSES
    truth = (rng.random((images, len(names))) < np.linspace(0.35, 0.04, len(names))).astype(np.int8)  # (n, C)
    ids = np.array([f"train/{k:05d}.png" for k in range(images)])
    for stage, n in (("warmup", 3), ("train", epochs), ("finetune", 2)):
        files.write_history(_history(stage, n, rng, hidden), folder / stage / "history.csv")
    if pseudo:
        for epoch in range(epochs):
            write_pseudo_labels(folder / "train", epoch, names, ids, truth, rng, hidden)
    write_evaluation(folder / "evaluate", names, truth, rng)
    return folder


def write_pseudo_labels(
    stage: Path, epoch: int, names: list[str], ids: np.ndarray, truth: np.ndarray, rng: np.random.Generator, hidden: bool
) -> None:
    """One epoch's weights, thresholds and pseudo-labels, of a network that gets surer with every epoch."""
    sure = 1.2 + 0.5 * (1 - 0.8**epoch)
    p = torch.sigmoid(torch.from_numpy(1.2 * rng.normal(size=truth.shape) + (2 * truth - 1.25) * sure))
    y, known = torch.from_numpy(truth), rng.random(len(truth)) < 0.2

    def optimal(confidence: Tensor, bins: int) -> tuple[Tensor, Tensor] | None:
        n_pos, n_neg = count_bins(confidence, y, bins)
        return (n_pos / (n_pos + n_neg), n_pos + n_neg) if hidden else None

    rates, thresholds = estimate_rates(*count_bins(p[known], y[known], 20)), dual_thresholds(p[known], y[known])
    label = hard_labels(p, thresholds)
    pseudo = PseudoLabels(p, label, correctness_weight(p, label, rates))
    record(Refresh(pseudo, rates, thresholds), stage, epoch, ids=ids, classes=names, optimal=optimal)


def write_evaluation(folder: Path, names: list[str], truth: np.ndarray, rng: np.random.Generator) -> None:
    """details.json, per_class.csv and predictions.parquet; the last class has no positive."""
    truth = truth.copy()
    truth[:, -1] = 0
    score = 1 / (1 + np.exp(-(rng.normal(size=truth.shape) + (truth * 2 - 1.2) * 1.6)))
    folder.mkdir(parents=True, exist_ok=True)
    counts = {"n_pos": truth.sum(0), "n_train_labelled": 1 + truth.sum(0) // 5, "chance": truth.mean(0)}
    pd.DataFrame({"class": names, "ap": average_precision(score, truth)} | counts).to_csv(folder / "per_class.csv", index=False)
    details = metrics(score, truth) | {"map": 83.53, "map_low": 81.2, "map_high": 85.6, "map_corrected": None}
    details |= {"map_raw": 83.1, "map_ema": 83.53, "map_warmup": 71.9, "map_train": 82.4, "curve_error": 0.021}
    details |= {"steps_warmup": 600, "steps_train": 1120, "steps_finetune": 40, "steps": 1760}
    best = {"": 83.9, "_stage": "train", "_epoch": 5, "_model": "ema"}
    details |= {f"best_on_test{part}": value for part, value in best.items()}
    details["roles"] = {"sup": 4, "est": 2, "unlabeled": len(truth) - 6, "test": len(truth)}
    write_json(details, folder / "details.json")
    ids, answer = np.array([f"test-{k:03d}" for k in range(len(truth))]), np.where(score > 0.6, 1, np.where(score > 0.4, -1, 0))
    files.write_predictions(ids, score, answer, truth, folder / "predictions.parquet")


def _history(stage: str, epochs: int, rng: np.random.Generator, hidden: bool) -> list[dict[str, Any]]:
    start, rise, steps = {"warmup": (55.0, 17, 200), "train": (72.0, 10.5, 187), "finetune": (82.5, 1, 20)}[stage]
    rows = []
    for epoch in range(epochs):
        score = start + (1 - np.exp(-3 * (epoch + 1) / epochs)) * rise
        row = {"epoch": epoch, "steps": steps, "loss": 9.0 * np.exp(-0.3 * epoch) + 1, "lr": 1e-4}
        row |= {"loss_sup": 6.0 * np.exp(-0.4 * epoch) + 0.3, "map_raw": score + rng.normal() * 0.7, "map_ema": score}
        if stage != "finetune":
            row |= {"loss_con": 0.4 * np.exp(-0.1 * epoch), "grad_sup": 2.0, "grad_con": 0.01}
        if stage == "train":
            row |= {"loss_pseudo": 2.0 * np.exp(-0.2 * epoch) + 0.4, "n_crossed": 1, "n_guarded": 0, "grad_pseudo": 1.0}
            row |= {"weight_pos": 0.7 + 0.01 * epoch, "weight_pos_sd": 0.05, "weight_neg": 0.95}
            row |= {"share_pos": 0.2, "share_neg": 0.7 + 0.01 * epoch, "share_uncertain": 0.1 - 0.01 * epoch}
            if hidden:
                row |= {"curve_error": 0.05 / (1 + epoch), "precision_pos": 0.95 - 0.15 / (1 + epoch), "precision_neg": 0.97}
        rows.append(row)
    return rows
