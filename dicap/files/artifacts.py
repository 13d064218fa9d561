"""Every file that one stage writes for another: schemas, reading, writing, in this one place.

Files are written to a temporary name in the same folder and renamed, so a reader sees the old file or the new one, never half.
Parquet carries page checksums: a flipped bit is an error, not a wrong number.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dicap.errors import DataError

ROLES = ("sup", "est", "unlabeled", "test", "validation")

SPLIT = pa.schema([("id", pa.string()), ("role", pa.string())])
WEIGHTS = pa.schema(
    [
        ("bin", pa.int16()),
        ("left", pa.float64()),
        ("right", pa.float64()),
        ("n_pos", pa.int64()),
        ("n_neg", pa.int64()),
        ("r_pos", pa.float64()),
        ("r_neg", pa.float64()),
        ("optimal_r_pos", pa.float64()),  # from hidden labels: diagnostic only, null where there are none
        ("optimal_n", pa.int64()),
    ]
)
CLASS_WEIGHTS = WEIGHTS.insert(0, pa.field("class", pa.string()))  # tables that know the class
THRESHOLDS = pa.schema(
    [
        ("class", pa.string()),
        ("tau_pos", pa.float64()),
        ("tau_neg", pa.float64()),
        ("n_pos", pa.int64()),
        ("n_neg", pa.int64()),
        ("crossed", pa.bool_()),
    ]
)
PSEUDO_LABELS = pa.schema(
    [
        ("id", pa.string()),
        ("confidence", pa.list_(pa.float16())),
        ("label", pa.list_(pa.int8())),  # 1, 0, -1: positive, negative, uncertain
        ("weight", pa.list_(pa.float16())),
    ]
)
# Entries (image, class) of a row group; a record is read one group at a time.
ROW_GROUP, MOST_ROWS = 50_000_000, 1 << 20
# Columns of history.csv, one row per epoch: what each epoch of a stage gave; a method may add columns. `steps` counts
# batches and is empty where the stage was solved.
HISTORY = ("epoch", "steps", "loss", "loss_sup", "loss_pseudo", "loss_con", "lr", "map_raw", "map_ema")
# Columns of cost.csv, one row per epoch: minutes of all of it and of its parts; memory of the device, and of the process, in GiB.
COST = (
    *("epoch", "minutes", "minutes_data", "minutes_step", "minutes_refresh", "minutes_evaluation"),
    *("images_per_s", "peak_memory_gb", "peak_resident_gb"),
)
PREDICTIONS = pa.schema([("id", pa.string()), ("score", pa.list_(pa.float32())), ("label", pa.list_(pa.int8()))])


@contextmanager
def writing_parquet(schema: pa.Schema, path: Path) -> Iterator[pq.ParquetWriter]:
    """Yield a writer of row groups, with page checksums; the file is there when all are written, as in `replacing`."""
    # A dictionary of numbers, or of ids, is made and thrown away again; labels have three values.
    many = ["id", *(f"{field.name}.list.element" for field in schema if field.type == pa.list_(pa.float16()))]
    few = [leaf for leaf in _leaves(schema) if leaf not in many]
    options: dict[str, Any] = {"use_dictionary": few, "write_statistics": few, "write_batch_size": 65536}
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(temporary, schema, write_page_checksum=True, compression="zstd", **options) as writer,
    ):
        yield writer


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table with page checksums, atomically."""
    with writing_parquet(table.schema, path) as writer:
        writer.write_table(table)


def _leaves(schema: pa.Schema) -> list[str]:
    return [f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name for field in schema]


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read one Parquet file, verifying its checksums.

    Raises:
        DataError: if it is missing, damaged or lacks a column.
    """
    with _readable(path):
        return pq.read_table(path, columns=columns, page_checksum_verification=True, partitioning=None)  # type: ignore[arg-type]


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; `dvc repro` makes it") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: damaged ({reason}); remove it and run `dvc repro`") from None


def parquet_columns(path: Path) -> list[str]:
    """The names of a Parquet file's columns. Raises DataError if it is missing or damaged."""
    with _readable(path):
        return list(pq.read_schema(path).names)


def lists(matrix: np.ndarray, kind: pa.DataType) -> pa.Array:
    """A list column from an (n, C) array, without a Python loop."""
    n, width = matrix.shape
    offsets = pa.array(np.arange(0, (n + 1) * width, width, dtype=np.int32) if width else np.zeros(n + 1, np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(matrix).ravel(), type=kind))


def matrix(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """The (n, C) array of a list column whose lists have one length."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    n = len(column)
    values = column.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(n, -1) if n else values.reshape(0, 0)


def epoch_file(folder: Path, kind: str, epoch: int) -> Path:
    """`<folder>/<kind>/epoch=NNN/part-0.parquet`: pandas reads `<folder>/<kind>` as one frame with an epoch column."""
    return folder / kind / f"epoch={epoch:03d}" / "part-0.parquet"


def epochs(folder: Path, kind: str) -> list[int]:
    """The epochs that `<folder>/<kind>` holds, ascending."""
    found = [int(path.name.removeprefix("epoch=")) for path in (folder / kind).glob("epoch=*") if path.is_dir()]
    return sorted(found)


def write_split(ids: Sequence[str], roles: Sequence[str], path: Path) -> None:
    """Write the role (one of ROLES) of every image."""
    assert set(roles) <= set(ROLES), set(roles) - set(ROLES)
    write_parquet(pa.table({"id": list(ids), "role": list(roles)}, schema=SPLIT), path)


def read_split(path: Path) -> pd.DataFrame:
    """Frame with id and role, in the order of the data set's rows. Raises DataError."""
    frame = read_parquet(path).to_pandas()
    if list(frame.columns) != SPLIT.names:
        raise DataError(f"{path}: columns {list(frame.columns)}, expected {SPLIT.names}; run `dvc repro split`")
    strange = ~frame["role"].isin(ROLES)
    if strange.any():
        row = frame[strange].iloc[0]
        raise DataError(f"{path}: {row['id']}: role {row['role']!r}, allowed are {', '.join(ROLES)}; run `dvc repro split`")
    return frame


def write_weights(columns: dict[str, Any], path: Path) -> None:
    """Write an epoch's rates, one row per bin (one per class and bin where a `class` column is given)."""
    write_parquet(pa.table(columns, schema=CLASS_WEIGHTS if "class" in columns else WEIGHTS), path)


def write_thresholds(columns: dict[str, Any], path: Path) -> None:
    """Write an epoch's thresholds, one row per class."""
    write_parquet(pa.table(columns, schema=THRESHOLDS), path)


class PseudoLabelGroup(NamedTuple):
    """Some images of a record."""

    ids: list[str]  # (n,)
    confidence: np.ndarray  # (n, C) float16
    label: np.ndarray  # (n, C) int8
    weight: np.ndarray  # (n, C) float16


def write_pseudo_labels(ids: np.ndarray, confidence: np.ndarray, label: np.ndarray, weight: np.ndarray, path: Path) -> None:
    """Write an epoch's pseudo-labels: per image confidences, labels and weights, halves of what trains, in row groups.

    Args:
        confidence, label, weight: (n, C).
    """
    n, classes = label.shape
    rows = min(MOST_ROWS, max(1, ROW_GROUP // max(1, classes)))
    with writing_parquet(PSEUDO_LABELS, path) as writer:
        for start in range(0, max(1, n), rows):
            group = slice(start, start + rows)
            p, y = confidence[group].astype(np.float16, copy=False), label[group].astype(np.int8, copy=False)
            w = weight[group].astype(np.float16, copy=False)
            values = [lists(p, pa.float16()), lists(y, pa.int8()), lists(w, pa.float16())]
            writer.write_table(pa.Table.from_arrays([pa.array(ids[group], pa.string()), *values], schema=PSEUDO_LABELS))


def pseudo_label_groups(path: Path) -> Iterator[PseudoLabelGroup]:
    """The images of a record, one row group at a time. Raises DataError."""
    with _readable(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        for number in range(file.num_row_groups):
            table = file.read_row_group(number)
            columns = (matrix(table[name]) for name in ("confidence", "label", "weight"))
            yield PseudoLabelGroup(table["id"].to_pylist(), *columns)


def read_pseudo_labels(path: Path) -> PseudoLabelGroup:
    """All images of a record. Raises DataError if the file is missing or damaged."""
    ids, *parts = zip(*pseudo_label_groups(path), strict=True)
    return PseudoLabelGroup(
        list(chain.from_iterable(ids)), *(part[0] if len(part) == 1 else np.concatenate(part) for part in parts)
    )


def write_predictions(ids: np.ndarray, scores: np.ndarray, labels: np.ndarray, path: Path) -> None:
    """Write the (n, C) scores and true labels of scored images."""
    columns = [
        pa.array(list(ids), pa.string()),
        lists(scores.astype(np.float32), pa.float32()),
        lists(labels.astype(np.int8), pa.int8()),
    ]
    write_parquet(pa.Table.from_arrays(columns, schema=PREDICTIONS), path)


def write_history(rows: list[dict[str, Any]], path: Path, columns: Sequence[str] = ()) -> None:
    """Write history.csv or cost.csv, one row per epoch; its columns: `columns` and the rows' other keys, in order."""
    columns = list(dict.fromkeys([*columns, *(key for row in rows for key in row)]))
    with replacing(path) as temporary:
        pd.DataFrame(rows, columns=columns).to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")


def cost_file(artifacts: Path, stage: str) -> Path:
    """`<artifacts>/cost/<stage>.csv`: outside the stages' folders, so that no training stage depends on a time."""
    return artifacts / "cost" / f"{stage}.csv"


def write_json(values: dict[str, Any], path: Path) -> None:
    """Write readable JSON; a NaN is a programmer's error."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises DataError if it is missing or damaged."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; `dvc repro` makes it") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise DataError(f"{path}: not readable as JSON; remove it and run `dvc repro`") from None
    if not isinstance(values, dict):
        raise DataError(f"{path}: expected a JSON object; remove it and run `dvc repro`")
    return values


def make_room(path: Path, *, folder: bool) -> None:
    """Make the folder of `path`. Raises DataError where there is a file in place of a folder or the reverse."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise DataError(f"{path.parent}: a file stands where a folder is needed; move it away") from None
    if path.exists() and path.is_dir() != folder:
        found, needed = ("a file", "a folder") if folder else ("a folder", "a file")
        raise DataError(f"{path}: {found} stands where {needed} is to be written; move it away")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`; on success it replaces `path`, on failure it is removed.

    The temporary name is constant: some formats keep the name they were written under.
    """
    make_room(path, folder=False)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder next to `path`; on success it replaces `path`, on failure it is removed."""
    make_room(path, folder=True)
    recover(path)
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        swap_in(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def swap_in(folder: Path, destination: Path) -> None:
    """Give a finished folder the destination's name; what was there before is removed when the new one is in its place."""
    recover(destination)
    old = destination.with_name(f".{destination.name}.old")
    try:
        if destination.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(destination, old)
        os.rename(folder, destination)
    except BaseException:  # Ctrl-C too
        recover(destination)
        raise
    shutil.rmtree(old, ignore_errors=True)


def recover(destination: Path) -> None:
    """Undo a swap that ended between its two renames."""
    old = destination.with_name(f".{destination.name}.old")
    if old.exists() and not destination.exists():
        os.rename(old, destination)


# Places that a person chooses (`--out`). What a command wrote there it notes in the folder; it replaces that, and nothing else.

NOTE = ".dicap-written.json"  # {file below this folder: [size, time of change in ns]}


def check_own(*paths: Path) -> None:
    """Ask this before the work is done.

    Raises:
        DataError: at one of these places there is something that no command wrote, or that was changed since.
    """
    for path in map(Path, paths):
        if os.path.lexists(path) and (path.is_dir() or _noted(path.parent).get(path.name) != _mark(path)):
            raise not_own(path)


def check_own_folder(path: Path) -> None:
    """The same for a folder that is replaced as a whole: absent, empty, or as a command left it. Raises DataError."""
    path = Path(path).resolve()
    if Path.cwd().is_relative_to(path):
        raise DataError(f"{path}: this folder is worked in and cannot be replaced; name one in it")
    make_room(path, folder=True)
    if not path.exists():
        return
    noted, found = _noted(path), _marks(path)
    if strange := [name for name, mark in found.items() if noted.get(name) != mark]:
        raise not_own(path / strange[0])


@contextmanager
def replacing_own(path: Path) -> Iterator[Path]:
    """`replacing`, of nothing but what was written so before. Raises DataError, see `check_own`."""
    check_own(path)
    with replacing(path) as temporary:
        yield temporary
    known = {name: mark for name, mark in _noted(path.parent).items() if (path.parent / name).exists()}
    write_json(known | {path.name: _mark(path)}, path.parent / NOTE)


@contextmanager
def replacing_own_folder(path: Path) -> Iterator[Path]:
    """`replacing_folder`, of nothing but what was written so before. Raises DataError, see `check_own_folder`."""
    check_own_folder(path)
    with replacing_folder(Path(path).resolve()) as temporary:
        yield temporary
        write_json(_marks(temporary), temporary / NOTE)


def remove_own(path: Path) -> None:
    """Remove a file if it is there. Raises DataError, see `check_own`."""
    check_own(path)
    path.unlink(missing_ok=True)


def _noted(folder: Path) -> dict[str, Any]:
    try:
        return read_json(folder / NOTE)
    except DataError:  # none, or damaged: then nothing is known to be ours
        return {}


def _mark(path: Path) -> list[int]:
    info = path.lstat()
    return [info.st_size, info.st_mtime_ns]


def _marks(folder: Path) -> dict[str, list[int]]:
    """Of all that is no folder below a folder, but the note; links to folders included."""
    found = {}
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for path in (Path(place, name) for name in (*names, *links)):
            found[path.relative_to(folder).as_posix()] = _mark(path)
    found.pop(NOTE, None)
    return found


def not_own(path: Path) -> DataError:
    """The error where something stands that is not ours to replace."""
    return DataError(f"{path}: dicap did not write this, or it was changed since; move it away, or give another place")
