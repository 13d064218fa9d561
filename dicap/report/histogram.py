"""One epoch of a Parquet artifact as text lines and as a figure, whichever artifact it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from dicap.errors import DataError
from dicap.files import artifacts as files
from dicap.report import text
from dicap.report.evidence import histogram_of_record, pool_classes
from dicap.report.figures import calibration, pseudo_labels

KINDS = ("weights", "pseudo_labels", "thresholds")


@dataclass(frozen=True)
class Histogram:
    """title: what it shows. lines(width, ascii_only): its text. figure(): its drawing, inside `house_style()`."""

    title: str
    lines: Callable[[int, bool], list[str]]
    figure: Callable[[], Figure]


def open_histogram(path: Path, epoch: int | None = None) -> Histogram:
    """Read `path`: a folder of epochs (`epoch` chooses, the last one by default), one epoch's folder, or one file.

    Raises DataError in one line if there is nothing to read, or if it is no weights, pseudo_labels or thresholds table.
    """
    path, epoch = _one_file(Path(path), epoch)
    when = "" if epoch is None else f", epoch {epoch}"
    columns = set(files.parquet_columns(path))
    if {"bin", "r_pos", "n_pos", "n_neg", "optimal_r_pos"} <= columns:
        rates = pool_classes(files.read_parquet(path).to_pandas())
        return Histogram(
            f"{path}{when}: share of positives by confidence",
            lambda width, plain: text.rates(rates, width, plain),
            lambda: calibration.correctness(rates),
        )
    if {"id", "confidence", "label", "weight"} <= columns:
        by_weight, _, numbers = histogram_of_record(path)
        return Histogram(
            f"{path}{when}: weights of the pseudo-labels",
            lambda width, plain: text.weights(by_weight, numbers, width, plain),
            lambda: pseudo_labels.weight_bars(by_weight),
        )
    if {"class", "tau_pos", "tau_neg", "crossed"} <= columns:
        bands = files.read_parquet(path).to_pandas()
        return Histogram(
            f"{path}{when}: thresholds by class",
            lambda width, plain: text.thresholds(bands, width, plain),
            lambda: pseudo_labels.thresholds(bands),
        )
    found = ", ".join(sorted(columns)[:6])
    raise DataError(f"{path}: columns {found}; expected a table of {', '.join(KINDS[:-1])} or {KINDS[-1]}")


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
