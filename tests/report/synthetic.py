"""A made-up run: artifacts with the schemas of a real one, whose truth is known because it was drawn here."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from data.raw import small_set
from dicap.files import artifacts as files
from dicap.files.json_files import write_json

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
        write_pseudo_labels(folder / "pseudo_label", 0, names, ids, truth, rng, hidden)
        for epoch in range(epochs):
            write_pseudo_labels(folder / "train", epoch, names, ids, truth, rng, hidden)
    write_evaluation(folder / "evaluate", names, truth, rng)
    return folder


def write_pseudo_labels(
    stage: Path, epoch: int, names: list[str], ids: np.ndarray, truth: np.ndarray, rng: np.random.Generator, hidden: bool
) -> None:
    """One epoch's weights, thresholds and pseudo-labels; the network gets surer with every epoch."""
    confidence = 1 / (1 + np.exp(-(rng.normal(size=truth.shape) * 1.2 + (truth * 2 - 1.25) * (1.2 + 0.5 * (1 - 0.8**epoch)))))
    rate, n_pos, n_neg = _rates(confidence, truth)
    sample = rng.random(len(truth)) < 0.2
    estimated, est_pos, est_neg = _rates(confidence[sample], truth[sample])
    edges = np.arange(21) / 20
    columns = {
        "bin": np.arange(20),
        "left": edges[:-1],
        "right": edges[1:],
        "n_pos": est_pos,
        "n_neg": est_neg,
        "r_pos": estimated,
        "r_neg": 1 - estimated,
        "optimal_r_pos": rate if hidden else [None] * 20,
        "optimal_n": n_pos + n_neg if hidden else [None] * 20,
    }
    files.write_weights(columns, stage, epoch)
    tau_neg, tau_pos = rng.uniform(0.15, 0.4, len(names)), rng.uniform(0.5, 0.8, len(names))
    columns = {
        "class": names,
        "tau_pos": tau_pos,
        "tau_neg": tau_neg,
        "n_pos": truth.sum(0),
        "n_neg": (1 - truth).sum(0),
        "crossed": [k == 1 for k in range(len(names))],
    }
    files.write_thresholds(columns, stage, epoch)
    label = np.where(confidence > tau_pos, 1, np.where(confidence < tau_neg, 0, -1))
    r = np.interp(confidence, (edges[:-1] + edges[1:]) / 2, estimated)
    weight = np.where(label == 1, r, np.where(label == 0, 1 - r, 0))
    files.write_pseudo_labels(ids, confidence, label, weight, stage, epoch)


def write_evaluation(folder: Path, names: list[str], truth: np.ndarray, rng: np.random.Generator) -> None:
    """details.json, per_class.csv and predictions.parquet; the last class has no positive."""
    truth = truth.copy()
    truth[:, -1] = 0
    score = 1 / (1 + np.exp(-(rng.normal(size=truth.shape) + (truth * 2 - 1.2) * 1.6)))
    ap = np.round(np.clip(0.95 - 0.5 * np.arange(len(names)) / len(names), 0, 1), 4)
    ap[-1] = 0
    frame = {
        "class": names,
        "n_pos": truth.sum(0),
        "n_train_labelled": 1 + truth.sum(0) // 5,
        "ap": ap,
        "chance": truth.mean(0),
    }
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(frame).to_csv(folder / "per_class.csv", index=False)
    metrics = {
        "map": 83.53,
        "map_low": 81.2,
        "map_high": 85.6,
        "map_raw": 83.1,
        "map_ema": 83.53,
        "map_warmup": 71.9,
        "map_train": 82.4,
        "steps_warmup": 600,
        "steps_train": 1120,
        "steps_finetune": 40,
        "steps": 1760,
        "best_on_test": 83.9,
        "best_on_test_stage": "train",
        "best_on_test_epoch": 5,
        "best_on_test_model": "ema",
        "curve_error": 0.021,
        "n_test": len(truth),
        "roles": {"sup": 4, "est": 2, "unlabeled": len(truth) - 6, "test": len(truth)},
        "n_classes": len(names),
        "classes_without_positives": 1,
    }
    write_json(metrics, folder / "details.json")
    files.write_predictions(
        np.array([f"test-{k:03d}" for k in range(len(truth))]),
        score,
        np.where(score > 0.6, 1, np.where(score > 0.4, -1, 0)),
        truth,
        folder / "predictions.parquet",
    )


def write_dataset(folder: Path) -> Path:
    """A converted set with the test images that `write_run` made up."""
    return small_set(folder, n_train=1, n_test=60, size=16)


def _rates(confidence: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    index = np.minimum((confidence * 20).astype(int), 19).ravel()
    positive = np.bincount(index, weights=truth.ravel(), minlength=20).astype(int)
    total = np.bincount(index, minlength=20)
    centre = (np.arange(20) + 0.5) / 20
    full = total > 0
    return np.interp(centre, centre[full], positive[full] / total[full]), positive, total - positive


def _history(stage: str, epochs: int, rng: np.random.Generator, hidden: bool) -> list[dict[str, Any]]:
    start = {"warmup": 55.0, "train": 72.0, "finetune": 82.5}[stage]
    rows = []
    for epoch in range(epochs):
        gain = (1 - np.exp(-3 * (epoch + 1) / epochs)) * {"warmup": 17, "train": 10.5, "finetune": 1}[stage]
        row = {
            "epoch": epoch,
            "steps": {"warmup": 200, "train": 187, "finetune": 20}[stage],
            "loss": 9.0 * np.exp(-0.3 * epoch) + 1,
            "loss_sup": 6.0 * np.exp(-0.4 * epoch) + 0.3,
            "lr": 1e-4,
            "map_raw": start + gain + rng.normal() * 0.7,
            "map_ema": start + gain,
        }
        if stage != "finetune":
            row |= {"loss_con": 0.4 * np.exp(-0.1 * epoch), "grad_sup": 2.0, "grad_con": 0.01}
        if stage == "train":
            row |= {"loss_pseudo": 2.0 * np.exp(-0.2 * epoch) + 0.4, "n_crossed": 1, "n_guarded": 0, "grad_pseudo": 1.0}
            row |= {"weight_pos": 0.7 + 0.01 * epoch, "weight_pos_sd": 0.05, "weight_neg": 0.95}
            if hidden:
                row |= {"curve_error": 0.05 / (1 + epoch), "precision_pos": 0.95 - 0.15 / (1 + epoch), "precision_neg": 0.97}
        rows.append(row)
    return rows
