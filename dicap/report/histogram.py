"""One epoch of a Parquet artifact as bars in a terminal, whichever artifact it is."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

from dicap.errors import DataError
from dicap.files import artifacts as files
from dicap.files.tables import parquet_columns, read_parquet
from dicap.report.evidence import histogram_of_record, pool_classes
from dicap.report.figures.pseudo_labels import KINDS as LABELS

KINDS = ("weights", "pseudo_labels", "thresholds")
NARROWEST = 40  # columns: below this the numbers alone fill the line

Bar = tuple[str, float, float, str]  # name, start and end in [0, 1], the numbers it stands for


def lines(bars: Sequence[Bar], width: int) -> list[str]:
    """One line of at most `width` columns a bar: its name, the bar on a line from 0 to 1, its numbers.

    What is above zero shows at least one character of bar; a bar without length shows none.
    """
    names, numbers = max(columns_of(bar[0]) for bar in bars), max(len(bar[3]) for bar in bars)
    room = max(4, max(width, NARROWEST) - names - numbers - 3)
    shown = []
    for name, start, end, words in bars:
        first = min(room - 1, int(start * room))
        length = max(1, min(room, round(end * room)) - first) if end > start else 0
        track = " " * first + "█" * length
        shown.append(f"{name}{' ' * (names - columns_of(name))} {track:<{room}}  {words}".rstrip())
    return shown


def columns_of(text: str) -> int:
    """Columns that `text` takes in a terminal: wide letters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text
    )


def open_histogram(path: Path, epoch: int | None = None) -> tuple[str, list[Bar]]:
    """Title and bars of `path`: a folder of epochs (`epoch` chooses, the last one by default), one epoch's folder, or one file.

    Raises DataError in one line if there is nothing to read, or if it is no weights, pseudo_labels or thresholds table.
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
            bars.append((f"{row['left']:.2f}-{row['right']:.2f}", 0.0, rate, f"{words} of {entries:,}{optimal}"))
        return f"{path}{when}: share of positives by confidence, entries counted", bars
    if {"id", "confidence", "label", "weight"} <= columns:
        by_weight, numbers = histogram_of_record(path)
        most = by_weight.groupby("label")["n"].max().clip(lower=1)
        bars = [
            (f"{LABELS[kind][0]} {left:.2f}-{right:.2f}", 0.0, n / most[kind], f"{n:,}")
            for kind, left, right, n in by_weight[["label", "left", "right", "n"]].itertuples(index=False)
        ]
        shares = ", ".join(f"{numbers[kind]:,} {name}" for kind, (name, _) in LABELS.items())
        return f"{path}{when}: weights of the pseudo-labels ({shares})", bars
    if {"class", "tau_pos", "tau_neg", "crossed"} <= columns:
        bars = []
        for row in read_parquet(path).to_pandas().to_dict("records"):
            low, high = sorted((row["tau_neg"], row["tau_pos"]))
            words = f"{row['tau_neg']:.3f} to {row['tau_pos']:.3f}" + (", crossed" if row["crossed"] else "")
            bars.append((short(row["class"]), low, high, words))
        return f"{path}{when}: uncertain band by class", bars
    found = ", ".join(sorted(columns)[:6])
    raise DataError(f"{path}: columns {found}; expected a table of {', '.join(KINDS[:-1])} or {KINDS[-1]}")


def short(name: str, letters: int = 20) -> str:
    """`name` fit for a line: no control characters (they command a terminal), at most `letters` long, the middle left out."""
    name = "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in {"Cc", "Cs"} else c for c in str(name))
    if len(name) <= letters:
        return name
    tail = (letters - 1) // 3
    return f"{name[: letters - 1 - tail]}…{name[-tail:]}"


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
        hint = f"give {' or '.join(inside)}" if inside else "give a weights, pseudo_labels or thresholds folder"
        raise DataError(f"{path}: holds no epoch=NNN folders; {hint}")
    if epoch is not None and epoch not in epochs:
        raise DataError(f"{path}: epoch {epoch} is not there; it has {epochs[0]} to {epochs[-1]}")
    epoch = epochs[-1] if epoch is None else epoch
    return files.epoch_file(path.parent, path.name, epoch), epoch
