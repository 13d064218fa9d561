"""The artifacts that stages write for each other: their schemas, readers and writers."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dicap.errors import DataError
from dicap.files.atomic import replacing
from dicap.files.tables import lists, matrix, read_parquet, write_parquet

CHOICE = "choice.json"  # of a solved stage: the chosen linear.C and the chosen share of the students
ROLES = ("sup", "est", "unlabeled", "test")  # spelt as in labels.csv

SPLIT = pa.schema([("id", pa.string()), ("role", pa.string())])
EPOCH = pa.field("epoch", pa.int32())  # from 0; a column of every file, so that the files of a folder can be read as one table
WEIGHTS = pa.schema(
    [
        ("bin", pa.int16()),
        ("left", pa.float64()),
        ("right", pa.float64()),
        ("n_pos", pa.int64()),
        ("n_neg", pa.int64()),
        ("r_pos", pa.float64()),
        ("r_neg", pa.float64()),
        ("optimal_r_pos", pa.float64()),  # the true rate by hidden labels, diagnostic only; null for a bin without hidden labels
        ("optimal_n", pa.int64()),  # number of entries with hidden labels; null if the data set has none
        EPOCH,
    ]
)
THRESHOLDS = pa.schema(
    [
        ("class", pa.string()),
        ("tau_pos", pa.float64()),
        ("tau_neg", pa.float64()),
        ("n_pos", pa.int64()),
        ("n_neg", pa.int64()),
        ("crossed", pa.bool_()),
        EPOCH,
    ]
)
PSEUDO_LABELS = pa.schema(
    [
        ("id", pa.string()),
        ("confidence", pa.list_(pa.float32())),  # in the precision in which they were compared with the thresholds
        ("label", pa.list_(pa.int8())),  # 1, 0, -1: positive, negative, uncertain
        ("weight", pa.list_(pa.float32())),
        EPOCH,
    ]
)
KINDS = {"weights": WEIGHTS, "thresholds": THRESHOLDS, "pseudo_labels": PSEUDO_LABELS}
# Columns of history.csv, one row per epoch; a method may add columns. `steps` counts batches and is empty if the stage was
# solved.
HISTORY = ("epoch", "steps", "loss", "loss_sup", "loss_pseudo", "loss_con", "lr", "map_raw", "map_ema")
# Columns of cost.csv, one row per epoch: minutes of the epoch and of its parts; peak memory of GPU and process in GiB.
COST = (
    *("epoch", "minutes", "minutes_data", "minutes_step", "minutes_refresh", "minutes_evaluation"),
    *("images_per_s", "peak_memory_gb", "peak_resident_gb"),
)
PREDICTIONS = pa.schema(
    [
        ("id", pa.string()),
        ("score", pa.list_(pa.float32())),
        ("answer", pa.list_(pa.int8())),  # 1, 0, -1: yes, no, unsure
        ("label", pa.list_(pa.int8())),  # -1: unknown
    ]
)


def epoch_file(folder: Path, kind: str, epoch: int) -> Path:
    """`<folder>/<kind>/epoch-NNN.parquet`. pandas reads `<folder>/<kind>` as one table; `epoch=NNN` would add a category."""
    return folder / kind / f"epoch-{epoch:03d}.parquet"


def epochs(folder: Path, kind: str) -> list[int]:
    """The epochs that `<folder>/<kind>` holds, ascending."""
    return sorted(int(path.stem.removeprefix("epoch-")) for path in (folder / kind).glob("epoch-*.parquet"))


def write_split(ids: Sequence[str] | np.ndarray, roles: Sequence[str] | np.ndarray, path: Path) -> None:
    """Write the role (one of ROLES) of every image."""
    assert set(roles) <= set(ROLES), set(roles) - set(ROLES)
    write_parquet(pa.table({"id": list(ids), "role": list(roles)}, schema=SPLIT), path)


def read_roles(path: Path, ids: Sequence[str] | np.ndarray | None = None) -> np.ndarray:
    """The role of every image, (N,) strings, in the order of the data set's rows. With `ids`, the file must list these ids.

    Raises:
        DataError: the file is missing or damaged, is not a split file, or belongs to another data set.
    """
    table = read_parquet(path)
    if table.column_names != SPLIT.names:
        raise DataError(f"{path}: columns {table.column_names}, expected {SPLIT.names}; run `dvc repro split`")
    names, roles = table["id"].to_pylist(), table["role"].to_pylist()
    if unknown := set(roles) - set(ROLES):
        row = next(i for i, role in enumerate(roles) if role in unknown)
        raise DataError(f"{path}: {names[row]}: role {roles[row]!r}, allowed are {', '.join(ROLES)}; run `dvc repro split`")
    if ids is not None and names != list(ids):
        raise DataError(f"{path}: made for another data set than the converted one; run `dvc repro split`")
    return np.array(roles, object)


def write_epoch(columns: dict[str, Any], folder: Path, kind: str, epoch: int) -> None:
    """Write an epoch's `weights`, one row per bin, its `thresholds`, one per class, or its `pseudo_labels`, one per image."""
    rows = len(next(iter(columns.values())))
    columns = columns | {EPOCH.name: np.full(rows, epoch, np.int32)}
    write_parquet(pa.table(columns, schema=KINDS[kind]), epoch_file(folder, kind, epoch))


def read_pseudo_labels(path: Path) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    """The pseudo-labels of an epoch: ids (n), confidences (n, C) float32, labels int8, weights float32.

    Raises DataError if the file is missing or damaged.
    """
    table = read_parquet(path)
    confidence, label, weight = (matrix(table[name]) for name in ("confidence", "label", "weight"))
    return table["id"].to_pylist(), confidence, label, weight


def write_predictions(ids: np.ndarray, scores: np.ndarray, answers: np.ndarray, labels: np.ndarray, path: Path) -> None:
    """Write the (n, C) scores, answers and true labels of scored images."""
    scores, answers, labels = map(lists, (scores.astype(np.float32), answers.astype(np.int8), labels.astype(np.int8)))
    columns = {"id": list(ids), "score": scores, "answer": answers, "label": labels}
    write_parquet(pa.table(columns, schema=PREDICTIONS), path)


def write_history(rows: list[dict[str, Any]], path: Path, columns: Sequence[str] = ()) -> None:
    """Write history.csv or cost.csv, one row per epoch, with `columns` first and then the rows' other keys."""
    columns = list(dict.fromkeys([*columns, *(key for row in rows for key in row)]))
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)


def _cell(value: Any) -> Any:
    """The text of a CSV cell: six significant digits for floats, empty for NaN."""
    if not isinstance(value, float | np.floating):
        return value
    return "" if np.isnan(value) else f"{value:.6g}"


def cost_file(artifacts: Path, stage: str) -> Path:
    """`<artifacts>/cost/<stage>.csv`, outside the stages' folders, so that no stage's result depends on times."""
    return artifacts / "cost" / f"{stage}.csv"
