"""One epoch of a Parquet artifact as bars in a terminal: correctness by confidence, or the weights of pseudo-labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dicap.errors import DataError
from dicap.files import artifacts as files
from dicap.files.tables import parquet_columns, read_parquet
from dicap.report.evidence import histogram_of_record, pool_classes
from dicap.report.figures.pseudo_labels import KINDS as LABELS

KINDS = ("weights", "pseudo_labels")
NARROWEST = 40  # columns: below this the numbers alone fill the line

Bar = tuple[str, float, str]  # name, length in [0, 1], the numbers it stands for


def lines(bars: Sequence[Bar], width: int) -> list[str]:
    """One line of at most `width` columns a bar: its name, the bar, its numbers.

    What is above zero shows at least one character of bar.
    """
    names, numbers = max(len(bar[0]) for bar in bars), max(len(bar[2]) for bar in bars)
    room = max(4, max(width, NARROWEST) - names - numbers - 3)
    drawn = [(name, "█" * max(int(length > 0), round(length * room)), words) for name, length, words in bars]
    return [f"{name:<{names}} {bar:<{room}}  {words}" for name, bar, words in drawn]


def open_histogram(path: Path, epoch: int | None = None) -> tuple[str, list[Bar]]:
    """Title and bars of `path`: a folder of epochs (`epoch` chooses, the last one by default), one epoch's folder, or one file.

    Raises DataError in one line if there is nothing to read, or if it is no weights or pseudo_labels table.
    """
    path, epoch = _one_file(Path(path), epoch)
    when = "" if epoch is None else f", epoch {epoch}"
    columns = set(parquet_columns(path))
    if {"bin", "r_pos", "n_pos", "n_neg", "optimal_r_pos"} <= columns:
        rates = pool_classes(read_parquet(path).to_pandas())
        bars = []
        for row in rates.to_dict("records"):
            entries = int(row["n_pos"] + row["n_neg"])
            # Where nothing was counted there is no bar: the rate was filled in from elsewhere (calibration.empty_bin).
            rate, words = (row["r_pos"], f"{row['r_pos']:.3f}") if entries else (0.0, "-")
            optimal = f", optimal {row['optimal_r_pos']:.3f}" if row["optimal_r_pos"] == row["optimal_r_pos"] else ""
            bars.append((f"{row['left']:.2f}-{row['right']:.2f}", rate, f"{words} of {entries:,}{optimal}"))
        return f"{path}{when}: share of positives by confidence, entries counted", bars
    if {"id", "confidence", "label", "weight"} <= columns:
        by_weight, numbers = histogram_of_record(path)
        most = by_weight.groupby("label")["n"].max().clip(lower=1)
        bars = [
            (f"{LABELS[kind][0]} {left:.2f}-{right:.2f}", n / most[kind], f"{n:,}")
            for kind, left, right, n in by_weight[["label", "left", "right", "n"]].itertuples(index=False)
        ]
        shares = ", ".join(f"{numbers[kind]:,} {name}" for kind, (name, _) in LABELS.items())
        return f"{path}{when}: weights of the pseudo-labels ({shares})", bars
    found = ", ".join(sorted(columns)[:6])
    raise DataError(f"{path}: columns {found}; expected a table of {' or '.join(KINDS)}")


def _one_file(path: Path, epoch: int | None) -> tuple[Path, int | None]:
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; `dvc repro` writes artifacts/train/weights and its neighbours")
    if path.is_file() or path.name.startswith("epoch="):
        folder = path.parent if path.is_file() else path
        number = folder.name.removeprefix("epoch=")
        own = int(number) if number.isdigit() and number != folder.name else None
        if epoch is not None and epoch != own:
            raise DataError(f"{path}: is one epoch's; leave out --epoch {epoch} or give the folder above")
        return (path if path.is_file() else path / "part-0.parquet"), own
    epochs = files.epochs(path.parent, path.name)
    if not epochs:
        inside = [str(path / kind) for kind in KINDS if (path / kind).is_dir()]
        hint = f"give {' or '.join(inside)}" if inside else "give a weights or pseudo_labels folder"
        raise DataError(f"{path}: holds no epoch=NNN folders; {hint}")
    if epoch is not None and epoch not in epochs:
        raise DataError(f"{path}: epoch {epoch} is not there; it has {epochs[0]} to {epochs[-1]}")
    epoch = epochs[-1] if epoch is None else epoch
    return files.epoch_file(path.parent, path.name, epoch), epoch
