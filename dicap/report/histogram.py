"""Text histograms of one epoch for the terminal: correctness by confidence, or the weights of pseudo-labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dicap.errors import DataError
from dicap.files import artifacts as files
from dicap.files.tables import read_parquet
from dicap.report.evidence import histogram_of_record

KINDS = ("weights", "pseudo_labels")
LABELS = {1: "positive", 0: "negative", -1: "uncertain"}
NARROWEST = 40  # minimum width in columns

Bar = tuple[str, float, str]  # name, length in [0, 1], text with the numbers


def lines(bars: Sequence[Bar], width: int) -> list[str]:
    """One line of at most `width` columns per bar: its name, the bar, its numbers.

    A length above zero has at least one character.
    """
    names, numbers = max(len(bar[0]) for bar in bars), max(len(bar[2]) for bar in bars)
    room = max(4, max(width, NARROWEST) - names - numbers - 3)
    drawn = [(name, "█" * max(int(length > 0), round(length * room)), words) for name, length, words in bars]
    return [f"{name:<{names}} {bar:<{room}}  {words}" for name, bar, words in drawn]


def open_histogram(folder: Path, epoch: int | None = None) -> tuple[str, list[Bar]]:
    """Title and bars of an epoch of a folder `weights` or `pseudo_labels`. Epochs count from 1; default: the last epoch.

    Raises DataError if it is another folder or does not have this epoch.
    """
    epochs = files.epochs(folder.parent, folder.name)
    if folder.name not in KINDS or not epochs:
        raise DataError(f"{folder}: holds no epochs of {' or '.join(KINDS)}; give such a folder, as artifacts/train/weights")
    epoch = epochs[-1] + 1 if epoch is None else epoch
    if epoch - 1 not in epochs:
        raise DataError(f"{folder}: has no epoch {epoch}; it has epochs {epochs[0] + 1} to {epochs[-1] + 1}")
    path = files.epoch_file(folder.parent, folder.name, epoch - 1)
    title = f"{folder}, epoch {epoch} of {epochs[-1] + 1}"
    if folder.name == "weights":
        bars = []
        for row in read_parquet(path).to_pandas().to_dict("records"):
            entries = int(row["n_pos"] + row["n_neg"])
            # No bar for an empty bin, because its rate was only filled in (calibration.empty_bin).
            rate, words = (row["r_pos"], f"{row['r_pos']:.3f}") if entries else (0.0, "-")
            optimal = f", optimal {row['optimal_r_pos']:.3f}" if row["optimal_r_pos"] == row["optimal_r_pos"] else ""
            bars.append((f"{row['left']:.2f}-{row['right']:.2f}", rate, f"{words} of {entries:,}{optimal}"))
        return f"{title}: share of positives by confidence, entries counted", bars
    by_weight, numbers = histogram_of_record(path)
    most = by_weight.groupby("label")["n"].max().clip(lower=1)
    bars = [
        (f"{LABELS[kind]} {left:.2f}-{right:.2f}", n / most[kind], f"{n:,}")
        for kind, left, right, n in by_weight[["label", "left", "right", "n"]].itertuples(index=False)
    ]
    shares = ", ".join(f"{numbers[kind]:,} {name}" for kind, name in LABELS.items())
    return f"{title}: weights of the pseudo-labels ({shares})", bars
