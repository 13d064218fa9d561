"""Published models: safetensors files with classes, settings and evidence in the metadata. Pickles are never loaded."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from dicap.calibration.evidence import Evidence
from dicap.errors import DataError, SettingsError, first_line
from dicap.files.atomic import replacing
from dicap.files.json_files import check_kinds
from dicap.methods import build_method
from dicap.methods.base import Method
from dicap.network.backbone import tensors_checksum
from dicap.network.stored import StoredBackbone
from dicap.settings import Settings
from dicap.settings.catalogue import NAMED_WEIGHTS, RAW

KINDS = {"stage": str, "which": str, "classes": list[str], "settings": dict, "grid": int | None, "note": str, "checksum": str}
SCHEMA = 6
EVIDENCE = "evidence."  # prefix of the names of tensors that belong to the evidence


@dataclass(frozen=True)
class SavedModel:
    """A model read from a file."""

    network: nn.Module
    method: Method
    settings: Settings
    classes: list[str]
    which: str  # raw or ema
    stage: str
    evidence: Evidence
    checksum: str = ""


def save_model(
    network: nn.Module,
    path: Path,
    *,
    settings: Settings,
    classes: list[str],
    stage: str,
    which: str,
    evidence: Evidence | None = None,
    split: str | None = None,
) -> None:
    """Write a model file with the network's tensors and all metadata, atomically; equal models give equal bytes.

    Without `evidence` the model decides at 0.5. `split`: `Experiment.split_mark`, which the next stage checks.
    """
    evidence = evidence or Evidence.none(np.full(len(classes), np.nan), "no curve: saved without one; decisions at 0.5")
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    arrays = {name: value for name, value in vars(evidence).items() if isinstance(value, np.ndarray)}
    tensors |= {EVIDENCE + name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    metadata = {
        "schema": SCHEMA,
        "stage": stage,
        "which": which,
        "classes": classes,
        "settings": _without_paths(settings),
        "grid": getattr(network, "grid", None),
        "note": evidence.note,
        "split": split,
    }
    metadata["checksum"] = checksum(metadata, tensors)
    # A single entry, because safetensors writes several entries in a random order.
    with replacing(path) as temporary:
        # save_file would make a file that only its owner can read, also in a shared DVC cache.
        temporary.write_bytes(save(tensors, metadata={"dicap": json.dumps(metadata, sort_keys=True)}))


def _without_paths(settings: Settings) -> dict[str, Any]:
    """The settings without paths of the training machine and names of files and columns, for privacy."""
    values = settings.model_dump()
    if settings.backbone_weights not in NAMED_WEIGHTS:
        values["backbone_weights"] = Path(settings.backbone_weights).name
    paths = {"data_root": RAW, "weights_file": None, "convert": values["convert"] | {"lists": None}}
    return values | paths | {"own": type(settings.own)(test_share=settings.own.test_share).model_dump()}


def checksum(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """Checksum of metadata and tensors, because safetensors does not notice a flipped bit."""
    return tensors_checksum(tensors, json.dumps(metadata, sort_keys=True).encode())


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata of a published model. Raises DataError."""
    if path.is_dir():
        raise DataError(f"{path}: a folder; name the model.safetensors in it")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {})["dicap"])
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; `dvc repro` makes it") from None
    except (KeyError, json.JSONDecodeError):
        raise DataError(
            f"{path}: not a model of this project (no `dicap` metadata); give a model.safetensors that a stage wrote"
        ) from None
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        reason = first_line(error)
        # The user may have named another file by mistake, so the remedy must not simply be to remove the file.
        raise DataError(
            f"{path}: damaged or not a model ({reason}); if a stage wrote it, remove it and run `dvc repro`"
        ) from None
    schema = metadata.get("schema") if isinstance(metadata, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        raise DataError(f"{path}: schema {schema} of a newer version, this version reads {SCHEMA}; pip install --upgrade dicap")
    if schema != SCHEMA:
        raise DataError(f"{path}: schema {schema}, this version reads {SCHEMA}; train it again")
    check_kinds(metadata, KINDS, path, "train it again")
    return metadata


def load_model(path: str | Path, device: torch.device | str = "cpu", stored: StoredBackbone | None = None) -> SavedModel:
    """Rebuild a published model, in eval mode, with its classes, settings and evidence.

    Args:
        path: a model.safetensors, or its folder.
        stored: placeholder of the backbone, for a model whose inputs are feature maps.

    Raises:
        DataError: the file is missing, damaged or of another schema.

    >>> load_model("model.safetensors").classes
    ['blue', 'green', 'red']
    """
    path = Path(path)
    path = path / "model.safetensors" if (path / "model.safetensors").is_file() else path
    metadata, state, arrays = _read_whole(path)
    try:
        settings = Settings.model_validate(metadata["settings"])
    except ValidationError as error:
        raise DataError(f"{path}: its settings are of another version ({error.errors()[0]['msg']}); train it again") from None
    try:
        evidence = Evidence(note=metadata["note"], **{name: array.numpy() for name, array in arrays.items()})
    except TypeError:
        evidence = None
    if evidence is None or not evidence.fits(len(metadata["classes"])):
        raise DataError(f"{path}: its evidence is not readable; train it again")
    method = build_method(settings, len(metadata["classes"]))
    network = method.build_network(pretrained=False, stored=stored)
    network.grid = metadata["grid"]
    _fill(network, state, path)
    facts = {name: metadata[name] for name in ("classes", "which", "stage", "checksum")}
    return SavedModel(network.to(device).eval(), method, settings, evidence=evidence, **facts)


def load_weights(network: nn.Module, path: Path) -> None:
    """Load a published model's tensors into a network of the same shape. Raises DataError."""
    _fill(network, _read_whole(path)[1], path)


def _read_whole(path: Path) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]:
    """Metadata, weights and arrays of the evidence, after verifying the checksum."""
    metadata = read_metadata(path)
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: damaged ({error}); remove it and run `dvc repro`") from None
    if checksum({key: value for key, value in metadata.items() if key != "checksum"}, tensors) != metadata.get("checksum"):
        raise DataError(f"{path}: damaged (its content does not match its checksum); remove it and run `dvc repro`")
    arrays = {name: tensors.pop(name) for name in sorted(tensors) if name.startswith(EVIDENCE)}
    return metadata, tensors, {name.removeprefix(EVIDENCE): array for name, array in arrays.items()}


def _fill(network: nn.Module, state: dict[str, Tensor], path: Path) -> None:
    try:
        network.load_state_dict(state)
    except RuntimeError as error:  # the second line names a tensor that is missing, unexpected or of another shape
        reason = str(error).splitlines()[1].strip()[:160]
        raise DataError(f"{path}: its tensors do not fit the network ({reason}); train it again") from None


def check_same_problem(path: Path, settings: Settings, classes: list[str], split: str) -> None:
    """Check that a stage can continue from a model: same network, classes and split. Raises SettingsError or DataError.

    A model of another split may have learnt labels that are held out now. `split`: `Experiment.split_mark`.
    """
    metadata = read_metadata(path)
    if metadata["classes"] != classes:
        raise DataError(f"{path}: trained on other classes than the data set's; run `dvc repro`")
    for key in ("method", "backbone", "head", "image_size", "dataset", "seed", "ratio"):
        if (trained := metadata["settings"].get(key)) != getattr(settings, key):
            raise SettingsError(
                f"params.yaml: {key}: found {getattr(settings, key)!r}, but {path} was trained with {trained!r}; run `dvc repro`"
            )
    if metadata.get("split") != split:
        raise DataError(
            f"{path}: trained on another split than the current one, so it may have learnt labels that are held out now; "
            "run `dvc repro`"
        )
