"""A model from a folder of photographs in one call, for notebooks and scripts."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dicap.data.sources.files import list_images
from dicap.errors import DataError, SettingsError
from dicap.files.atomic import alone, replacing
from dicap.files.locks import locked
from dicap.models import SavedModel, load_model
from dicap.photos.folder import Images
from dicap.photos.predict import predict
from dicap.photos.readers.question import listed
from dicap.settings import Own
from dicap.settings.resolve import TEMPLATE, change_settings

LABELS, HELD = "labels.parquet", ".dicap-lock"  # Parquet distinguishes a missing value from the text NA
# Settings that are passed to `init-data` as options, since it must know them before it reads the labels.
READING = tuple(key for key in Own.model_fields if key not in ("added", "new_classes", "names"))
SEVERAL = (list, tuple, set, frozenset, np.ndarray)  # types of a cell with several labels
FILES = ("weights_file", "own.unlabeled_root")  # settings whose relative paths start at the caller's folder


@dataclass(frozen=True)
class Fitted:
    """The result of `fit`. Its files are removed with this object; `save` and `report` copy files to keep them."""

    folder: TemporaryDirectory
    held: ExitStack  # holds the folder's lock: a free lock shows that the process of its folder was killed

    @cached_property
    def model(self) -> SavedModel:
        """The model, as `load_model` returns it."""
        return load_model(self._results / "finetune" / "model.safetensors")

    @property
    def _results(self) -> Path:
        return Path(self.folder.name) / "artifacts"

    def predict(self, images: Images, **options: Any) -> pd.DataFrame:
        """A row for every image and class; see `dicap.predict`, which also names the options."""
        return predict(self.model, images, **{"known": Path(self.folder.name) / ".dicap" / "store" / "features", **options})

    def evaluate(self) -> dict[str, Any]:
        """mAP (%) with its 95 % interval and more on the test images, as in the pipeline's artifacts/evaluate/details.json."""
        return json.loads((self._results / "evaluate" / "details.json").read_text(encoding="utf-8"))

    def save(self, path: str | Path) -> Path:
        """Copy the model to a file, which `load_model` and `dicap-stage predict` read."""
        return _copied(self._results / "finetune" / "model.safetensors", Path(path))

    def report(self, path: str | Path = "report.html") -> Path:
        """Copy the report, one page that needs no network, to a file."""
        return _copied(self._results / "report" / "index.html", Path(path))


def fit(
    photographs: str | Path,
    labels: str | Path | pd.DataFrame | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    cache: str | Path | None = None,
) -> Fitted:
    """Train on a folder of photographs, some of them labelled.

    This runs the stages of the pipeline with the settings that `dicap-stage init-data` finds, so the numbers are the same.
    Progress is written to stderr; files are written only in the cache.

    Args:
        labels: a table (.csv, .parquet), another file of labels that `init-data` reads, or a DataFrame like such a table; None:
            the labels lie in the folder.
        settings: values of settings by dotted name, as {"ratio": 0.1, "seed": 2} (docs/reference.md).
        cache: folder that keeps converted images and features by content; None: ~/.cache/dicap.

    Raises DataError if the folder or the labels cannot be used; SettingsError if a setting is wrong.

    >>> fitted = fit("photographs", settings={"image_size": 32}, cache="cache")  # photographs/labels.csv exists
    >>> fitted.evaluate()["n_test"]
    12
    """
    if not isinstance(labels, str | Path | pd.DataFrame | None):
        found = type(labels).__name__
        raise DataError(f"labels: found a {found}, expected a file, or a DataFrame with the columns image and labels")
    photographs = Path(photographs).absolute()
    if not photographs.is_dir():
        raise DataError(f"{photographs}: no such folder")
    cache = Path(cache) if cache else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dicap"
    if cache.resolve().is_relative_to(photographs.resolve()):
        raise DataError(f"{cache}: this cache lies among the photographs; name a folder elsewhere with cache=")
    changes = _plain(settings or {})
    (cache / "store").mkdir(parents=True, exist_ok=True)
    with alone(cache / "fit", wait=True):
        for lock in cache.glob(f"fit-*/{HELD}"):  # folders without a lock do not belong to `fit`
            with suppress(OSError), locked(lock) as is_free:  # OSError: another user's lock, or one whose fit has just ended
                if is_free:
                    shutil.rmtree(lock.parent, ignore_errors=True)
        folder = TemporaryDirectory(prefix="fit-", dir=cache)
        place = Path(folder.name).absolute()
        (held := ExitStack()).enter_context(locked(place / HELD))
    joined = place / "photographs"
    options: list[str] = []
    for name in READING:
        if (value := changes.get(f"own.{name}")) is not None:
            options += [f"--{name.removesuffix('_root').replace('_', '-')}", listed(value)]
    try:
        (place / ".dicap").mkdir()
        (place / ".dicap" / "store").symlink_to((cache / "store").absolute())
        shutil.copyfile(TEMPLATE / "settings.yaml", place / "params.yaml")
        source = photographs if labels is None else _joined(photographs, labels, joined)
        _run("init-data", str(source), *options, folder=place)
        change_settings(place / "params.yaml", changes)
        _run("run", folder=place)
    except BaseException as error:
        folder.cleanup()
        if not isinstance(error, DataError | SettingsError):
            raise
        named = ("the data frame", LABELS) if isinstance(labels, pd.DataFrame) else (str(labels), Path(labels or "").name)
        text = str(error).replace(str(joined / named[1]), named[0]).replace(str(joined), str(photographs))
        raise type(error)(text) from None
    return Fitted(folder, held)


def _joined(photographs: Path, labels: str | Path | pd.DataFrame, place: Path) -> Path:
    """Put the photographs alone, and the labels, into the folder `place`; return the file of labels.

    The files are hard links if the cache and the photographs are on one disk, else copies: readers of a data set do not follow
    symbolic links out of its folder.
    """
    if not isinstance(labels, pd.DataFrame):
        labels = Path(labels).absolute()
        if not labels.is_file():
            raise DataError(f"{labels}: no such file")
        if labels.parent == photographs:
            return labels
    place.mkdir()  # `init-data` reports a folder without images
    for name in list_images(photographs, again=True, required=False):
        if (photographs / name).is_file():  # not a broken link
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            real = os.path.realpath(photographs / name)  # the relative target of a link would not be found from there
            try:
                os.link(real, place / name)
            except OSError:  # the cache is on another disk
                shutil.copy2(real, place / name)
    if isinstance(labels, pd.DataFrame):
        below = f"{photographs}{os.sep}"
        cells = labels.map(lambda cell: str(cell).removeprefix(below) if isinstance(cell, str | Path) else cell)
        table = {str(head): _column(cells.iloc[:, c]) for c, head in enumerate(cells.columns)}
        if len(table) < cells.shape[1]:
            raise DataError("labels: two columns of the data frame have one name; rename one")
        pq.write_table(pa.table(table), place / LABELS)
        return place / LABELS
    return Path(shutil.copy2(labels, place))


def _column(cells: pd.Series) -> pa.Array:
    """A column of a data frame: lists of names and numbers as they are, other values as texts; missing values stay missing."""
    if cells.dtype != np.dtype(object):
        return pa.array(cells, from_pandas=True)
    names = [list(map(str, cell)) if isinstance(cell, SEVERAL) else None if pd.isna(cell) else [str(cell)] for cell in cells]
    if any(isinstance(cell, SEVERAL) for cell in cells):
        return pa.array(names, pa.list_(pa.string()))
    return pa.array([name and name[0] for name in names], pa.string())


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as YAML can hold them, with absolute paths. Raises SettingsError for a value that YAML cannot hold."""
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in dict(settings).items()}
    for key in FILES:
        if isinstance(value := plain.get(key), str | Path) and Path(value).exists():
            plain[key] = str(Path(value).absolute())
    for key, value in plain.items():
        if not isinstance(value, str | int | float | list | None):
            found = type(value).__name__
            raise SettingsError(f"{key}: found a {found}; expected dotted names and plain values, as {{'ratio': 0.1}}")
    return plain


def _run(*words: str, folder: Path) -> None:
    """Run a command of `dicap-stage` in a folder and pass its progress on to this process's stderr.

    The command needs a process of its own: stages work in the current folder and handle signals.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "stages.cli", *words],
        cwd=folder,
        text=True,
        errors="replace",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    mistakes = []
    try:
        for line in process.stderr:
            if line.startswith("Error: "):
                mistakes.append(line.removeprefix("Error: ").strip())
            else:
                sys.stderr.write(line)
    except BaseException:  # to interrupt the cell of a notebook ends the training, too
        process.terminate()
        process.wait()
        raise
    if code := process.wait():
        kind = SettingsError if code == 2 else DataError
        raise kind("\n".join(mistakes) or f"dicap-stage {words[0]} ended with {code}; its lines stand above")


def _copied(source: Path, target: Path) -> Path:
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)
    return target
