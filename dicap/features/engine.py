"""Engines that compute a network's feature maps: torch and onnxruntime. A choice of the machine, not of the experiment.

On processors onnxruntime is 4 to 5 times as fast as torch as it comes, and 1.7 times where freed memory is kept
(benchmarks/features.py), with the same features to 1e-5. An engine takes the place of a network's backbone alone: normalisation
before it and heads after it are torch's, so every method's network works with every engine. Before it is used, its features of
a probe batch are compared with torch's.
"""

import copy
import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dicap.errors import DataError, SettingsError, first_line
from dicap.machine.processes import keep_freed_memory
from dicap.machine.runtime import Runtime
from dicap.network import Network
from dicap.network.backbone import feature_map, weights_checksum
from dicap.randomness import generator

ENGINES = ("auto", "torch", "onnxruntime")
PACKAGES = ("onnx", "onnxscript", "onnxruntime")  # what onnxruntime needs; the extra `export` brings them
# Difference from torch in float32 on the probe batch: root mean square over that of the features. Mixed precision keeps 8 bits
# of a number: 5 % on photographs, 11 % on random images.
TOLERANCES = {"torch": 0.15, "onnxruntime": 1e-4}
PROBE = 4  # images of the probe batch
OUTPUT = "features"

Run = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Engine:
    """What computed features.

    Attributes:
        name: torch or onnxruntime.
        version: of its package.
        precision: float32, bfloat16 or float16.
        difference: from torch in float32 on the probe batch, root mean square over that of the features.
        note: why `auto` did not take a faster one; empty if it did.
    """

    name: str
    version: str
    precision: str
    difference: float
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """What is recorded with the features."""
        values = asdict(self) | {"difference": float(f"{self.difference:.2g}")}
        return {key: value for key, value in values.items() if key != "note"}


def choose_engine(name: str, device: torch.device) -> str:
    """The engine that `--engine` names; auto: onnxruntime on a processor where it is installed, torch elsewhere.

    Raises:
        SettingsError: there is none of that name, its package is not installed, or it does not run on `device`.
    """
    if name not in ENGINES:
        raise SettingsError(f"--engine: found {name!r}, allowed are {', '.join(ENGINES)}")
    if name == "auto":
        return "onnxruntime" if device.type == "cpu" and _missing() is None else "torch"
    if name == "torch":
        return name
    if device.type != "cpu":
        raise SettingsError(f"--engine: found {name!r} on {device}, but it runs on processors; use torch, or --device cpu")
    if missing := _missing():
        raise SettingsError(
            f"--engine: found {name!r}, but its package {missing} is not installed; pip install 'dicap[export]', or use torch"
        )
    return name


def scoring_engine(
    network: Network, runtime: Runtime, name: str = "auto", *, image_size: int, probe: Tensor | None = None
) -> tuple[Network, Engine]:
    """A network that gives the same feature maps and scores, its backbone computed by an engine.

    On processors this process keeps the memory that it frees from now on: torch has twice the images/s (benchmarks/features.py).

    Args:
        network: on the runtime's device; it is put into eval mode, and shares all but the backbone with the result.
        runtime: where, and in which precision, torch computes.
        name: one of ENGINES.
        image_size: side of the images in pixels; the result takes no others.
        probe: images (b, 3, S, S) uint8 to compare the engine with torch on; random ones if not given.

    Returns:
        The network and what was chosen. It cannot be trained.

    Raises:
        SettingsError: see `choose_engine`.
        DataError: the engine cannot take the network, or its features differ from torch's by more than its tolerance. With
            `auto` torch is taken instead, and the engine's note says why.
    """
    chosen = choose_engine(name, runtime.device)
    if runtime.device.type == "cpu":
        keep_freed_memory()
    network = _with_backbone(network, network.backbone).eval()
    images = _probe(image_size) if probe is None else probe[:PROBE]
    images = images.to(runtime.device)
    with torch.inference_mode():
        expected = network.features(images)
    if chosen == "torch":
        return network, _torch_engine(network, runtime, images, expected, "")
    try:
        fast = _onnxruntime(network, images, expected)
    except DataError as error:
        if name != "auto":
            raise
        return network, _torch_engine(network, runtime, images, expected, f"{error}; torch is used")
    return fast


def _torch_engine(network: Network, runtime: Runtime, images: Tensor, expected: Tensor, note: str) -> Engine:
    difference = 0.0
    if runtime.amp is not None:
        with torch.inference_mode(), runtime.autocast():
            difference = _difference(network.features(images).float(), expected)
        _judge("torch", difference, "--amp off")
    precision = str(runtime.amp or torch.float32).removeprefix("torch.")
    return Engine("torch", torch.__version__, precision, difference, note)


def _onnxruntime(network: Network, images: Tensor, expected: Tensor) -> tuple[Network, Engine]:
    """The network with the engine's backbone, compared with torch."""
    worst = 0.0
    for fresh in (False, True):  # a file in the cache may have been damaged: then a new one is made, once
        path, cached = exported(network.backbone, images.shape[-1], fresh=fresh)
        try:
            backbone = _open_onnxruntime(path)
            fast = _with_backbone(network, backbone).eval()
            fast.memory_format = torch.contiguous_format
            with torch.inference_mode():
                parts = fast.features(images), fast.features(images[:1])  # the size of a batch is no part of it
            worst = max(_difference(parts[0], expected), _difference(parts[1], expected[:1]))
        except Exception as error:  # it raises kinds of its own; all mean the same to the user
            if cached:
                continue
            raise DataError(
                f"--engine: onnxruntime cannot compute this backbone ({first_line(error)}); use --engine torch"
            ) from None
        if not cached or worst <= TOLERANCES["onnxruntime"]:
            break
    _judge("onnxruntime", worst, "--engine torch")
    return fast, Engine("onnxruntime", _version("onnxruntime"), "float32", worst)


def _judge(name: str, difference: float, remedy: str) -> None:
    if not difference <= TOLERANCES[name]:  # nan too
        raise DataError(
            f"--engine: {name}'s features differ from those of torch in float32 by {difference:.2g} (relative, root mean "
            f"square) on a probe batch, more than its tolerance of {TOLERANCES[name]:g}; use {remedy}"
        )


def _difference(found: Tensor, expected: Tensor) -> float:
    if found.shape != expected.shape:
        return float("inf")
    return float((found - expected).square().mean().sqrt() / expected.square().mean().sqrt().clamp(min=1e-12))


def _probe(image_size: int) -> Tensor:
    """Random images, half of them smooth, (PROBE, 3, S, S) uint8."""
    numbers = torch.from_numpy(generator(0, "engine", 0, 0).random((PROBE, 3, image_size, image_size), dtype=np.float32))
    coarse = torch.nn.functional.interpolate(numbers[:, :, :4, :4], image_size, mode="bilinear")
    smooth = torch.arange(PROBE).view(-1, 1, 1, 1) % 2 == 0
    return (torch.where(smooth, coarse, numbers) * 255).to(torch.uint8)


class _EngineBackbone(nn.Module):
    """In the place of a backbone: normalised pixels (B, 3, S, S) -> feature map (B, D, h, w), on the processor.

    A batch is divided over `workers` threads. Threads that call at the same time share them.
    """

    def __init__(self, run: Run, workers: int) -> None:
        super().__init__()
        self._run, self._workers = run, workers
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="engine")

    def forward(self, pixels: Tensor) -> Tensor:
        parts = [part.numpy() for part in pixels.float().contiguous().chunk(self._workers)]
        return torch.from_numpy(np.concatenate(list(self._threads.map(self._run, parts))))


class _FeatureMap(nn.Module):
    """What is exported: the backbone with its tokens turned into a map."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, pixels: Tensor) -> Tensor:
        return feature_map(self.backbone, pixels)


def _with_backbone(network: Network, backbone: nn.Module) -> Network:
    """A network that shares everything with `network` but its backbone."""
    other = copy.copy(network)
    other._modules = dict(network._modules)
    other.backbone = backbone
    return other


def _open_onnxruntime(path: Path) -> _EngineBackbone:
    """A session of one thread for each part of a batch: threads that divide each operator wait for one another after it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return _EngineBackbone(lambda pixels: session.run([OUTPUT], {name: pixels})[0], torch.get_num_threads())  # type: ignore[arg-type, return-value]


def exported(backbone: nn.Module, image_size: int, *, fresh: bool = False) -> tuple[Path, bool]:
    """The backbone's feature map as an ONNX file, and whether it lay in the cache.

    Args:
        backbone: (B, 3, S, S) float32 -> (B, D, h, w).
        image_size: S.
        fresh: write it again, whatever is in the cache.
    """
    key, weights = hashlib.sha256(), weights_checksum(backbone.state_dict())
    for part in (weights, repr(backbone), str(image_size), torch.__version__, _version("onnxscript")):
        key.update(part.encode())
    folder = _cache() / key.hexdigest()[:32]
    path = folder / "backbone.onnx"
    if path.exists() and not fresh:
        return path, True
    scratch = Path(tempfile.mkdtemp(prefix=".export-", dir=folder.parent))
    try:
        _export(backbone, image_size, scratch / path.name)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(scratch, folder)
    except OSError:  # another process has just made the same one; or the disk is full, which its absence shows
        if not path.exists():
            raise
    except Exception as error:  # the exporter raises many kinds; all mean the same to the user
        reason = first_line(error)
        raise DataError(f"--engine: this backbone cannot be exported as ONNX ({reason}); use --engine torch") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return path, False


def _export(backbone: nn.Module, image_size: int, path: Path) -> None:
    module = _FeatureMap(backbone).eval()
    pixels = torch.zeros(2, 3, image_size, image_size)
    with _quiet(), torch.no_grad():
        program = torch.export.export(module, (pixels,), dynamic_shapes={"pixels": {0: torch.export.Dim("batch")}})
        written = torch.onnx.export(program, (), input_names=["pixels"], output_names=[OUTPUT], verbose=False)
        assert written is not None
        written.save(str(path), external_data=True)  # one file holds 2 GB at most


@contextmanager
def _quiet():
    """Without what the exporters say of their own ageing parts, and of what they leave unoptimised."""
    logger = logging.getLogger("onnxscript")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _cache() -> Path:
    """A folder for exported backbones among the temporary files, readable by its owner alone: what lies there is run."""
    folder = Path(tempfile.gettempdir()) / f"dicap-engines-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.lstat()
    if state.st_uid != os.getuid() or state.st_mode & 0o077 or not folder.is_dir() or folder.is_symlink():
        raise DataError(f"{folder}: belongs to another user or is open to others; remove it, set TMPDIR, or use --engine torch")
    return folder


def _missing() -> str | None:
    """The first package of onnxruntime that is not installed."""
    return next((package for package in PACKAGES if importlib.util.find_spec(package) is None), None)


def _version(package: str) -> str:
    return importlib.metadata.version(package)
