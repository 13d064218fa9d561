"""Predictions for images, in memory or streamed to a file."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn

from dicap.calibration.ranks import GROUP, MOST_GROUPS
from dicap.data.loader import worker_count
from dicap.errors import DataError, SettingsError, out_of_memory
from dicap.evaluation.answers import Answers
from dicap.files.written import check_own, replacing_own
from dicap.frozen.features.accelerated import accelerated, engines, with_backbone
from dicap.frozen.features.known import KnownFeatures
from dicap.machine.processes import keep_freed_memory
from dicap.machine.progress import progress
from dicap.machine.runtime import Runtime
from dicap.metrics.operating_point import chance_interval
from dicap.models import SavedModel, load_model
from dicap.network import Network, detach_backbone
from dicap.photos.folder import Images, Photograph, photographs, read_ahead
from dicap.provenance import code_of

ANSWERS = np.array(["no", "yes", "unsure"], dtype=object)  # indexed by the answer 0, 1 or -1
FORMATS = ("parquet", "csv")
PART = 2048  # images whose rows are written at once
CPU_BATCH, GPU_BATCH = 32, 256
KNOWN_BATCH = 256  # larger if features may be known: the images without known features then fill a batch

ROWS = pa.schema(
    [
        ("image", pa.string()),
        ("class", pa.string()),
        ("probability", pa.float32()),
        ("decision", pa.string()),
        ("chance", pa.float32()),
        ("chance_low", pa.float32()),  # 95 % interval of the chance
        ("chance_high", pa.float32()),
    ]
)
IMAGES = pa.schema([(name, pa.string()) for name in ("image", "labels", "unsure", "absent")])


@dataclass
class Outcome:
    """The number of readable images, and (path, reason) of each unreadable file."""

    images: int = 0
    unreadable: list[tuple[str, str]] = field(default_factory=list)


def predict(
    model: SavedModel | str | Path,
    images: Images,
    *,
    device: str = "auto",
    per_image: bool = False,
    known: Path | None = None,
) -> pd.DataFrame:
    """Predict images; return a table with a row for each image and class, or for each image.

    Args:
        model: from `load_model`, or the path of a model.safetensors or of its folder.
        images: a file, a folder (searched to the bottom), an open PIL image, an array (H, W, 3) or (N, H, W, 3) uint8, or a
            sequence of these.
        device: `auto`, `cpu`, `cuda`.
        known: folder that stores features of a frozen backbone by content, such as .dicap/store/features of a project: images
            with stored features are only decoded. None: no such folder.

    Returns:
        DataFrame of image (path, or number of an image without a file), class, probability (the network's confidence), decision
        (`yes`, `no` or `unsure`, by the model's thresholds), chance (the measured chance that the decision is right; NaN where
        unsure or not measured) and its 95 % interval, chance_low and chance_high. With `per_image`: image, labels (the classes
        with a yes, separated by `;`; `-` if every class is a no), unsure, and absent (the classes with a no; `*`: all but the
        labels); unsure classes stay unknown if the table is read as labels.
        `frame.attrs["unreadable"]` lists (path, reason) of the files that could not be read.

    Raises DataError if the model cannot be read, or no image is found or can be read.

    >>> table = predict("model.safetensors", "photographs")  # a row for each of 48 images and 3 classes
    >>> len(table), sorted(set(table["decision"]) - {"yes", "no", "unsure"})
    (144, [])
    """
    photos = photographs(images)
    saved, runtime, seen = opened_for(model, device, len(photos), known)
    outcome = Outcome()
    frame = pa.concat_tables(_tables(saved, photos, runtime, outcome, per_image, seen)).to_pandas()
    frame.attrs["unreadable"] = outcome.unreadable
    return frame


def predict_to_file(
    model: SavedModel | str | Path,
    images: Images,
    out: str | Path,
    *,
    device: str = "auto",
    per_image: bool = False,
    known: Path | None = None,
) -> Outcome:
    """Predict images into a file, with arguments and rows as in `predict`. Memory does not grow with the number of images.

    `out` ends in .parquet or .csv; the file appears when it is complete. Unreadable images are listed with the reason in
    `<out stem>.unreadable.csv`. Raises SettingsError if `out` has another ending; DataError as `predict`.
    """
    out = Path(out)
    kind = out.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise SettingsError(f"--out: found {str(out)!r}, expected a file that ends in .parquet or .csv")
    listing = out.with_name(f"{out.stem}.unreadable.csv")
    check_own(out, listing)
    photos = photographs(images)
    saved, runtime, seen = opened_for(model, device, len(photos), known)
    outcome = Outcome()
    with closing(progress(photos, desc="predict", total=len(photos), unit="image")) as shown, replacing_own(out) as temporary:
        _write(kind, _tables(saved, shown, runtime, outcome, per_image, seen), temporary, IMAGES if per_image else ROWS)
    check_own(listing)
    listing.unlink(missing_ok=True)
    if outcome.unreadable:
        with replacing_own(listing) as temporary:
            pd.DataFrame(outcome.unreadable, columns=["image", "reason"]).to_csv(temporary, index=False, lineterminator="\n")
    return outcome


def open_model(model: SavedModel | str | Path, device: str = "auto") -> tuple[SavedModel, Runtime]:
    """Load a model, or the model.safetensors in a folder, onto a device. Raises DataError, SettingsError."""
    runtime = Runtime.choose(device)
    if runtime.device.type == "cpu":
        keep_freed_memory()
    if isinstance(model, SavedModel):
        model.network.to(runtime.device)
        return model, runtime
    path = Path(model)
    return load_model(path / "model.safetensors" if path.is_dir() else path, runtime.device), runtime


def opened_for(
    model: SavedModel | str | Path, device: str, images: int, known: Path | None = None
) -> tuple[SavedModel, Runtime, KnownFeatures | None]:
    """Open a model, with the fastest way to compute its backbone for this number of images, and with its known features."""
    saved, runtime = open_model(model, device)
    if not isinstance(saved.network, Network):
        return saved, runtime, None
    network, by = accelerated(saved.network, images, saved.settings.image_size, runtime.device)
    if known is None or network.grid is None:  # features of a trained backbone are not stored
        return replace(saved, network=network), runtime, None
    # A feature bank has more views, so another engine may have computed it; the features differ in the last bits only.
    precision = [str(runtime.amp or torch.float32).removeprefix("torch."), runtime.device.type]
    ways = [by, *(engine for engine in engines() if engine != by)]
    made_by = [{"engine": [*engine, *precision], "code": code_of("features", saved.settings)} for engine in ways]
    seen = KnownFeatures(known, saved.settings, network, made_by, runtime.amp)
    head = with_backbone(network, network.backbone)
    detach_backbone(head, network.grid)
    return replace(saved, network=head), runtime, seen


def _tables(
    model: SavedModel,
    photos: Iterable[Photograph],
    runtime: Runtime,
    outcome: Outcome,
    per_image: bool,
    seen: KnownFeatures | None,
) -> Iterator[pa.Table]:
    """Yield the rows of the readable images, about PART images at a time; `outcome` records readable and unreadable images."""
    parts, count, answers = [], 0, Answers.of(model.evidence)
    rows = _by_image if per_image else _by_entry
    for names, inputs in batches(photos, model.settings.image_size, runtime, outcome, seen):
        parts.append(rows(names, score(model, inputs, runtime), model.classes, answers))
        count += len(names)
        if count >= PART:
            yield pa.concat_tables(parts)
            parts, count = [], 0
    if parts:
        yield pa.concat_tables(parts)


def batches(
    photos: Iterable[Photograph], size: int, runtime: Runtime, outcome: Outcome, seen: KnownFeatures | None = None
) -> Iterator[tuple[list[str], Tensor]]:
    """Yield (names, inputs of the network) of the readable images: images (n, 3, S, S) uint8, or their features if `seen` is set.

    `outcome` records readable and unreadable images. Raises DataError at the end if no image can be read.
    """
    few = CPU_BATCH if seen is None else KNOWN_BATCH
    for batch, images in read_ahead(photos, size, GPU_BATCH if runtime.device.type == "cuda" else few, worker_count()):
        names, pixels = [], []
        for photo, image in zip(batch, images, strict=True):
            if isinstance(image, str):
                outcome.unreadable.append((photo.name, image))
            else:
                names.append(photo.name)
                pixels.append(image)
        if names:
            outcome.images += len(names)
            squares = np.stack(pixels)
            yield names, torch.from_numpy(squares).permute(0, 3, 1, 2) if seen is None else seen.maps(squares)
    if not outcome.images:
        (path, reason), count = outcome.unreadable[0], len(outcome.unreadable)
        raise DataError(f"{path}: {reason}" if count == 1 else f"none of {count} images can be read; the first: {path}: {reason}")


def embeddings(network: nn.Module, photos: Iterable[Photograph], size: int, runtime: Runtime) -> tuple[list[str], np.ndarray]:
    """The names of the readable images, and their feature maps averaged over positions, (n, D). Raises DataError as `batches`."""
    names, parts = [], []
    network = network.to(runtime.device).eval()
    for of_batch, inputs in batches(photos, size, runtime, Outcome()):
        names += of_batch
        parts.append(embedding(network, inputs, runtime))
    return names, np.concatenate(parts)


def embedding(network: nn.Module, inputs: Tensor, runtime: Runtime) -> np.ndarray:
    """The feature maps of a batch averaged over positions, (n, D) float32."""
    with torch.inference_mode(), runtime.autocast():
        return network.features(inputs.to(runtime.device)).float().mean((2, 3)).cpu().numpy()  # type: ignore[operator]


def score(model: SavedModel, images: Tensor, runtime: Runtime) -> np.ndarray:
    """Scores (n, C) float32 of square images (n, 3, S, S) uint8 or their features; halves the batch if memory is too small."""
    try:
        with torch.inference_mode(), runtime.autocast():
            return model.method.scores(model.network, images.to(runtime.device)).float().cpu().numpy()
    except Exception as error:
        if out_of_memory(error) is None:
            raise
        if len(images) == 1:
            raise DataError("one image does not fit into the device's memory; use --device cpu") from None
    torch.cuda.empty_cache()
    half = len(images) // 2
    return np.concatenate([score(model, images[:half], runtime), score(model, images[half:], runtime)])


def _by_entry(names: Sequence[str], scores: np.ndarray, classes: Sequence[str], answers: Answers) -> pa.Table:
    """A row for each image and class."""
    answer, chance = answers.decide(scores)
    low = high = chance
    if answers.curve is not None:
        chance, low, high = chance_interval(chance, answers.evidence.entries, GROUP, MOST_GROUPS)
    columns = [
        pa.array(np.repeat(np.array(names, dtype=object), len(classes)), pa.string()),
        pa.array(np.tile(np.array(classes, dtype=object), len(names)), pa.string()),
        pa.array(scores.ravel(), pa.float32()),
        pa.array(ANSWERS[answer.ravel()], pa.string()),
        *(pa.array(values.ravel().astype(np.float32), pa.float32(), from_pandas=True) for values in (chance, low, high)),
    ]
    return pa.Table.from_arrays(columns, schema=ROWS)


def _by_image(names: Sequence[str], scores: np.ndarray, classes: Sequence[str], answers: Answers) -> pa.Table:
    """A row for each image: its classes with a yes, unsure ones, and those with a no, in the form of a table of labels."""
    every, (answer, _) = np.array(classes), answers.decide(scores)
    yes, unsure, no = ([";".join(every[row == value]) for row in answer] for value in (1, -1, 0))
    labels = [text or ("" if has_unsure else "-") for text, has_unsure in zip(yes, unsure, strict=True)]
    absent = [text or "-" if has_unsure else "*" for text, has_unsure in zip(no, unsure, strict=True)]
    return pa.table({"image": names, "labels": labels, "unsure": unsure, "absent": absent}, schema=IMAGES)


def _write(kind: str, tables: Iterable[pa.Table], path: Path, schema: pa.Schema) -> None:
    """Write the tables one after another; only one is in memory."""
    if kind == "parquet":
        with pq.ParquetWriter(path, schema, write_page_checksum=True, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table)
        return
    for i, table in enumerate(tables):
        mode = "a" if i else "w"
        table.to_pandas().to_csv(path, mode=mode, header=not i, index=False, float_format="%.6g", lineterminator="\n")
