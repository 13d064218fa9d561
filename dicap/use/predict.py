"""Predictions for a folder of images, in memory or streamed to a file."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from dicap.artifacts import read_parquet, replacing, write_json, write_parquet
from dicap.data.loader import worker_count
from dicap.data.sources.files import list_images
from dicap.errors import DataError, SettingsError
from dicap.evaluation.engine import with_engine
from dicap.models import SavedModel, load_model
from dicap.progress import progress
from dicap.runtime import Runtime
from dicap.use.folder import read_ahead

ANSWERS = {1: "yes", 0: "no", -1: "unsure"}
FORMATS = ("parquet", "csv", "json")
PART = 2048  # images of one part: what a kill loses at most
CPU_BATCH, GPU_BATCH = 32, 256

ROWS = pa.schema(
    [
        ("image", pa.string()),
        ("class", pa.string()),
        ("probability", pa.float32()),
        ("decision", pa.string()),
        ("chance", pa.float32()),
    ]
)


@dataclass
class Outcome:
    """What came of a folder: counts, and the files that could not be read, with reasons."""

    images: int = 0
    resumed: int = 0
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    note: str = ""  # why no faster engine than torch was taken


def predict(
    model: SavedModel | str | Path,
    images: str | Path | Sequence[str | Path],
    *,
    batch_size: int | None = None,
    device: str = "auto",
    engine: str = "auto",
) -> pd.DataFrame:
    """One row for every image and class.

    Args:
        model: from `load_model`, or the path of a model.safetensors.
        images: a folder, searched recursively, or the paths of image files.
        batch_size: images per step; None: chosen, and halved where the memory is too small.
        device: `auto`, `cpu`, `cuda`.
        engine: what computes the backbone: `auto`, `torch`, `onnxruntime`, `openvino`, `openvino-bf16`.

    Returns:
        DataFrame of image (path), class, probability (the network's confidence), decision (`yes`, `no` or `unsure`, by the
        model's thresholds) and chance (the measured chance that the decision is right; NaN where unsure or not measured).
        `frame.attrs["unreadable"]` lists (path, reason) of the files that were skipped.

    Raises:
        DataError: the model cannot be read, the folder holds no image, or none of the images can be read.
    """
    folder, paths = (Path(images), list_images(Path(images))) if isinstance(images, str | Path) else (Path(), [*map(str, images)])
    saved, runtime = open_model(model, device)
    saved, note = with_engine(saved, runtime, engine, len(paths))
    outcome = Outcome(note=note)
    tables = [_rows(names, scores, saved) for names, scores in stream(saved, folder, paths, runtime, batch_size, outcome)]
    if not tables:
        raise DataError(f"{folder}: none of {len(paths)} images can be read; the first: {': '.join(outcome.unreadable[0])}")
    frame = pa.concat_tables(tables).to_pandas()
    frame.attrs["unreadable"] = outcome.unreadable
    return frame


def predict_to_file(
    model: SavedModel | str | Path,
    folder: Path,
    out: Path,
    *,
    batch_size: int | None = None,
    device: str = "auto",
    engine: str = "auto",
    workers: int | None = None,
    fresh: bool = False,
    part: int = PART,
) -> Outcome:
    """Predict every image below `folder` into `out`, as streamed: memory does not grow with the number of images.

    `out` ends in .parquet or .csv (one row for every image and class) or .json (one object per image). Finished parts wait in
    `<out>.parts/`; a killed run continues after them if model, folder and list of images are the same. Files that
    cannot be read are listed with the reason in `<out stem>.unreadable.csv`.

    Raises:
        SettingsError: `out` has another ending; DataError: as `predict`.
    """
    kind = out.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise SettingsError(f"--out: found {str(out)!r}, expected a file that ends in .parquet, .csv or .json")
    paths = list_images(folder)
    saved, runtime = open_model(model, device)
    saved, note = with_engine(saved, runtime, engine, len(paths))
    parts = out.with_name(f"{out.name}.parts")
    _same_job(parts, saved, folder, paths, part, fresh)
    outcome = Outcome(note=note)
    starts = range(0, len(paths), part)
    done = [start for start in starts if (parts / f"{start:09d}.json").exists()]
    with _bar(len(paths), sum(min(part, len(paths) - start) for start in done)) as advance:
        for start in starts:
            names = paths[start : start + part]
            record = parts / f"{start:09d}.json"
            if not record.exists():
                own = Outcome()
                tables = [
                    _rows(seen, scores, saved)
                    for seen, scores in stream(saved, folder, names, runtime, batch_size, own, advance, workers)
                ]
                write_parquet(pa.concat_tables(tables) if tables else ROWS.empty_table(), parts / f"{start:09d}.parquet")
                write_json({"images": own.images, "unreadable": [list(pair) for pair in own.unreadable]}, record)
            else:
                outcome.resumed += len(names)
            written = json.loads(record.read_text(encoding="utf-8"))
            outcome.images += written["images"]
            outcome.unreadable += [(path, reason) for path, reason in written["unreadable"]]
    if not outcome.images:
        shutil.rmtree(parts)
        raise DataError(f"{folder}: none of {len(paths)} images can be read; the first: {': '.join(outcome.unreadable[0])}")
    _write(kind, [parts / f"{start:09d}.parquet" for start in starts], out, len(saved.classes))
    listing = out.with_name(f"{out.stem}.unreadable.csv")
    listing.unlink(missing_ok=True)
    if outcome.unreadable:
        with replacing(listing) as temporary:
            pd.DataFrame(outcome.unreadable, columns=["image", "reason"]).to_csv(temporary, index=False, lineterminator="\n")
    shutil.rmtree(parts)
    return outcome


def open_model(model: SavedModel | str | Path, device: str = "auto") -> tuple[SavedModel, Runtime]:
    """A model on its device. A folder means the model.safetensors in it. Raises DataError, SettingsError."""
    runtime = Runtime.choose(device)
    if isinstance(model, SavedModel):
        model.network.to(runtime.device)
        return model, runtime
    path = Path(model)
    return load_model(path / "model.safetensors" if path.is_dir() else path, runtime.device), runtime


def stream(
    model: SavedModel,
    folder: Path,
    paths: Sequence[str],
    runtime: Runtime,
    batch_size: int | None,
    outcome: Outcome,
    advance: Any = None,
    workers: int | None = None,
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yield (paths, scores (n, C) float32) of the readable images, batch by batch; `outcome` counts the others."""
    batch = batch_size or (GPU_BATCH if runtime.device.type == "cuda" else CPU_BATCH)
    threads = max(1, worker_count() if workers is None else workers)
    for names, images in read_ahead(folder, paths, model.settings.image_size, batch, threads):
        readable = [(name, image) for name, image in zip(names, images, strict=True) if not isinstance(image, str)]
        outcome.unreadable += [(name, image) for name, image in zip(names, images, strict=True) if isinstance(image, str)]
        if readable:
            outcome.images += len(readable)
            yield [name for name, _ in readable], score(model, np.stack([image for _, image in readable]), runtime)
        if advance is not None:
            advance(len(names))


def score(model: SavedModel, images: np.ndarray, runtime: Runtime) -> np.ndarray:
    """Scores (n, C) float32 of square images (n, S, S, 3) uint8. Where the memory is too small the batch is halved."""
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    try:
        with torch.inference_mode(), runtime.autocast():
            return model.method.scores(model.network, pixels.to(runtime.device)).float().cpu().numpy()
    except torch.OutOfMemoryError:
        if len(images) == 1:
            raise DataError("one image does not fit into the device's memory; use --device cpu") from None
    torch.cuda.empty_cache()
    half = len(images) // 2
    return np.concatenate([score(model, images[:half], runtime), score(model, images[half:], runtime)])


def _rows(names: Sequence[str], scores: np.ndarray, model: SavedModel) -> pa.Table:
    answer, chance = model.decisions.decide(scores)
    n, classes = scores.shape
    words = np.array([ANSWERS[-1], ANSWERS[0], ANSWERS[1]], dtype=object)[answer.ravel() + 1]
    columns = [
        pa.array(np.repeat(np.array(names, dtype=object), classes), pa.string()),
        pa.array(np.tile(np.array(model.classes, dtype=object), n), pa.string()),
        pa.array(scores.ravel(), pa.float32()),
        pa.array(words, pa.string()),
        pa.array(chance.ravel().astype(np.float32), pa.float32(), from_pandas=True),
    ]
    return pa.Table.from_arrays(columns, schema=ROWS)


def _same_job(parts: Path, model: SavedModel, folder: Path, paths: Sequence[str], part: int, fresh: bool) -> None:
    """Keep the parts of the same job and remove all others."""
    digest = hashlib.sha256(json.dumps([model.checksum, str(folder.resolve()), list(paths), part]).encode()).hexdigest()
    record = parts / "job.json"
    try:
        known = json.loads(record.read_text(encoding="utf-8")).get("job") == digest
    except (OSError, ValueError, AttributeError):
        known = False
    if fresh or not known:
        shutil.rmtree(parts, ignore_errors=True)
        write_json({"job": digest}, record)


def _write(kind: str, parts: Sequence[Path], out: Path, classes: int) -> None:
    """Join the parts, one in memory at a time."""
    with replacing(out) as temporary:
        if kind == "parquet":
            with pq.ParquetWriter(temporary, ROWS, write_page_checksum=True, compression="zstd") as writer:
                for path in parts:
                    writer.write_table(read_parquet(path))
        elif kind == "csv":
            for i, path in enumerate(parts):
                frame = read_parquet(path).to_pandas()
                frame.to_csv(
                    temporary, mode="a" if i else "w", header=not i, index=False, float_format="%.6g", lineterminator="\n"
                )
        else:
            with temporary.open("w", encoding="utf-8") as file:
                first = True
                for path in parts:
                    for entry in _objects(read_parquet(path), classes):
                        file.write(("[\n" if first else ",\n") + json.dumps(entry, ensure_ascii=False, allow_nan=False))
                        first = False
                file.write("\n]\n")


def _objects(table: pa.Table, classes: int) -> Iterator[dict[str, Any]]:
    columns = [table[name].to_pylist() for name in ROWS.names]
    for start in range(0, len(table), classes):
        rows = zip(*(column[start : start + classes] for column in columns), strict=True)
        entry = {
            name: {"probability": _six(probability), "decision": decision, "chance": _six(chance)}
            for _, name, probability, decision, chance in rows
        }
        yes = [name for name, values in entry.items() if values["decision"] == "yes"]
        yield {"image": columns[0][start], "yes": yes, "classes": entry}


def _six(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


@contextmanager
def _bar(total: int, initial: int) -> Iterator[Any]:
    """A function that advances the progress bar by so many images."""
    bar = progress(iter(range(total - initial)), desc="predict", total=total, unit="image", initial=initial)

    def advance(count: int) -> None:
        for _ in range(count):
            next(bar, None)

    try:
        yield advance
        next(bar, None)
    finally:
        bar.close()  # type: ignore[attr-defined]
