"""A data set of coloured patches and settings that train on it in seconds: what the tests of the training side share."""

import atexit
import csv
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
import torch
import warm
from PIL import Image
from torch import nn

from dicap.data import format as files
from dicap.data.convert import convert
from dicap.data.format import read_groups
from dicap.data.sources import read_raw
from dicap.data.split import split_index, split_roles
from dicap.data.store import Store
from dicap.files.artifacts import write_split
from dicap.files.features import BACKBONE
from dicap.frozen.features.bank import FeatureBank
from dicap.frozen.features.compute import fill
from dicap.frozen.features.recipe import Recipe, pretrained_network
from dicap.frozen.inputs import BankFeatures
from dicap.machine.runtime import Runtime
from dicap.network.latent import LatentHead
from dicap.network.relation import RelationHead
from dicap.network.stored import save_backbone
from dicap.settings import Settings, read_yaml, resolve_values
from dicap.settings.catalogue import OWN
from dicap.training import run
from dicap.training.experiment import Experiment
from dicap.training.hidden import HiddenLabelReader
from dicap.training.loops.warmup import initial_network
from stages.support.training import start_from

ROOT = Path(__file__).parents[1]
SIZE = 32
COLOURS = {"blue": (40, 60, 230), "green": (40, 200, 60), "red": (220, 40, 40)}
COUNTS = {"train": 28, "test": 12, "unlabeled": 8}

SMALL = {"backbone": "test_resnet", "backbone_weights": "random", "image_size": SIZE, "network.stride": 16}
CHANGES: dict[str, Any] = SMALL | {
    "dataset": "table",
    "data_root": "/nowhere",
    "ratio": 0.5,
    "split.est_fraction": 0.3,
    "network.decoder_dim": 16,
    "network.decoder_ffn": 16,
    "network.decoder_heads": 2,
    "optimiser.lr": 0.002,
    "optimiser.ema_decay": 0.8,
    "linear.solver": "steps",
    "warmup.trainable": "all",  # configs/table.yaml trains the head alone
    "train.trainable": "all",
    "warmup.epochs": 2,
    "warmup.batch_size": 3,
    "warmup.eval_every": 2,
    "train.epochs": 2,
    "train.cycle_epochs": 0,
    "train.batch_size": 8,
    "train.batch_labelled": 2,
    "finetune.epochs": 3,
    "finetune.batch_size": 2,
    "finetune.ema_decay": 0.5,
    "pclp.warmup_epochs": 2,
    "pclp.adversary_width": 4,
    "pclp.adversary_size": 8,
    "drml.rounds": 4,
    "drml.iterations": 3,
    "drml.batch_size": 4,
    "drml.start": 1,
    "drml.per_round": 2,
}
# Hidden layers of DRML and PCLP: as wide as published they would be most of what is computed and saved.
NARROW = {RelationHead: {"width": 16, "hidden": 12, "relation": 10}, LatentHead: {"width": 16}}
FROZEN = {"warmup.trainable": "head", "train.trainable": "head", "features.views": 2}  # beside those, for a bank of features


def settings(changes: dict[str, Any] | None = None) -> Settings:
    """The settings of data set `table` with those above, and then `changes`, put in their places."""
    return Settings.model_validate(nested(_defaults(), CHANGES | (changes or {})))


@cache
def _defaults() -> dict[str, Any]:
    values = read_yaml(ROOT / "params.yaml") | {name: CHANGES[name] for name in ("dataset", "data_root")}
    return resolve_values(values, ROOT / "params.yaml").settings.model_dump()


def nested(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of nested `values` with dotted keys changed."""
    values = {key: dict(value) if isinstance(value, dict) else value for key, value in values.items()}
    for key, value in changes.items():
        *parents, name = key.split(".")
        target = values
        for parent in parents:
            target = target[parent]
        target[name] = value
    return values


def photographs(folder: Path, counts: dict[str, int] | None = None, ending: str = "png", size: int = SIZE) -> Path:
    """Images with a patch of a class's colour for every class they show, and the table that lists them."""
    rng = np.random.default_rng(5)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for split, count in (counts or COUNTS).items():
        for i in range(count):
            pixels = rng.integers(90, 140, (size, size, 3)).astype(np.uint8)
            shown = [name for k, name in enumerate(COLOURS) if (i + 1) & (1 << k)]  # every subset, the empty one too
            for name in shown:
                y, x = rng.integers(0, size - size // 3, 2)
                pixels[y : y + size // 3, x : x + size // 3] = COLOURS[name]
            path = f"{split}-{i:03d}.{ending}"
            Image.fromarray(pixels).save(folder / path)
            rows.append((path, split, "" if split == "unlabeled" else ";".join(shown)))
    with open(folder / "labels.csv", "w", newline="") as handle:
        csv.writer(handle).writerows([("image", "split", "labels"), *rows])
    return folder


def in_part(raw: Path, folder: Path, share: float = 0.4) -> Path:
    """The same photographs, a share of whose entries are unknown: a table with a column `absent`."""
    rng = np.random.default_rng(3)
    folder.mkdir()
    for image in raw.glob("*.png"):
        shutil.copy(image, folder)
    rows = [("image", "split", "labels", "absent")]
    for row in csv.DictReader((raw / "labels.csv").open()):
        shown = row["labels"].split(";") if row["labels"] else []
        known = [name for name in COLOURS if rng.random() > share] or ["red"]
        present, absent = ([name for name in known if (name in shown) == wanted] for wanted in (True, False))
        if row["split"] == "unlabeled":
            present = absent = []
        rows.append((row["image"], row["split"], ";".join(present), ";".join(absent) or ("-" if present else "")))
    with open(folder / "labels.csv", "w", newline="") as handle:
        csv.writer(handle).writerows(rows)
    return folder


def converted(raw: Path, folder: Path) -> Path:
    """The converted set of a folder of photographs."""
    convert(read_raw("table", raw), folder, image_size=SIZE, workers=0)
    return folder


def roles_of(index: pd.DataFrame, ratio: float, seed: int, est_fraction: float, *, by_id: bool = False) -> np.ndarray:
    """`split_roles` of columns id, split and perhaps labelled (else all are) and added."""
    n = len(index)
    labelled, added = index.get("labelled", np.full(n, True)), index.get("added", np.full(n, None))
    columns = np.asarray(index["id"]), np.asarray(index["split"]), np.asarray(labelled, bool), np.asarray(added)
    return split_roles(*columns, ratio=ratio, seed=seed, est_fraction=est_fraction, by_id=by_id)


def draw_split(folder: Path, path: Path, s: Settings) -> Path:
    """The split file of a converted set, as `dicap-stage split` draws it."""
    own = s.dataset == OWN
    ids, *more = split_index(folder)
    shares = {"ratio": s.ratio, "est_fraction": s.split.est_fraction}
    roles = split_roles(ids, *more, **shares, seed=s.seed, by_id=own, groups=read_groups(folder))
    write_split(ids, roles, path)
    return path


def open_experiment(
    folder: Path, split: Path, changes: dict[str, Any] | Settings | None = None, workers: int = 0, bank: FeatureBank | None = None
) -> Experiment:
    """An experiment on the processor; with a bank of features the head alone is trained."""
    s = changes if isinstance(changes, Settings) else settings(changes)
    if not split.exists():
        draw_split(folder, split, s)
    seen = bank and BankFeatures(bank, s.seed, s.augment.flip)
    return Experiment.open(s, Runtime(torch.device("cpu"), workers=workers), folder, split, bank=seen)


def stages_of(folder: Path, split: Path, s: Settings, bank: FeatureBank | None) -> list[tuple[str, Experiment]]:
    """The stages that there are and their experiments, as the commands open them."""
    experiment = open_experiment(folder, split, s, bank=bank if s.needs_features else None)
    first = experiment.on_bank() if s.needs_features else experiment
    stages = (("warmup", first), ("train", experiment), ("finetune", experiment))
    return [(stage, its) for stage, its in stages if s.trains(stage)]


def features(folder: Path, place: Path, changes: dict[str, Any] | None = None) -> FeatureBank:
    """The bank of a converted set's features."""
    s, store = settings({"features.views": 2} | (changes or {})), Store.open(folder)
    network = pretrained_network(s)
    recipe = Recipe.of(s, store, network)
    fill(place, recipe, store, network, place.with_name(f"{place.name}-known"), workers=0)
    save_backbone(network.backbone, place / BACKBONE)
    return FeatureBank.open(place)


def run_stage(experiment: Experiment, stage: str, source: Path | None, place: Path, **options: Any) -> Path:
    """Run warmup, train or finetune from the model in `source` to `place`/<stage>; its state lies under `place`."""
    out = place / stage
    run.run_stage(
        stage,
        experiment,
        network_of(experiment, source),
        inputs=[] if source is None else [source],
        source=None if source is None else source.parent,
        root=place,
        out=out,
        **({"log": lambda lines: None} | options),
    )
    return out


def run_stages(stages: Iterable[tuple[str, Experiment]], place: Path) -> Path:
    """Run stages of experiments one after the other, each from the model before; the last one's model."""
    source = None
    for stage, experiment in stages:
        source = run_stage(experiment, stage, source, place) / "model.safetensors"
    assert source is not None, "no stage is asked for"
    return source


AUTHOR = {f"GIT_{who}_{what}": text for who in ("AUTHOR", "COMMITTER") for what, text in (("NAME", "t"), ("EMAIL", "t@e.org"))}


def listed(*which: str) -> list[str]:
    """The files of this checkout that Git tracks; `which`: options of `git ls-files` for others."""
    done = subprocess.run(["git", "ls-files", *which], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [name for name in done.stdout.splitlines() if os.path.lexists(ROOT / name)]


NOT_IGNORED = ("--cached", "--others", "--exclude-standard")


def copy_project(folder: Path, *without: str) -> Path:
    """The files of this checkout that Git does not ignore, at another place, links as links; not those below `without`."""
    for name in listed(*NOT_IGNORED):
        if not name.startswith(without):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def typed(line: str, folder: Path, environment: dict[str, str]) -> str:
    """What a command says that is typed in a folder; it must succeed."""
    done = subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{line}\n{said[-6000:]}"
    assert "Traceback" not in said, line
    return said


def updates(update: Callable[[dict[str, torch.Tensor], tuple[str, ...]], None]) -> Any:
    """What a step asks of a trainer, without one: hands every update's loss terms and parameter groups to a function."""
    return SimpleNamespace(autocast=nullcontext, update=lambda terms, *groups: update(terms, groups))


def network_of(experiment: Experiment, model: Path | None) -> Callable[[], nn.Module]:
    """A function that makes the experiment's network: new, or with a model's weights."""
    return start_from(experiment, model) if model else lambda: initial_network(experiment)


def hidden_labels(experiment: Experiment, rows: np.ndarray) -> np.ndarray:
    """(n, C) uint8 labels of any rows."""
    return HiddenLabelReader(experiment.folder).labels(rows)[0].numpy()


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def flip(path: Path, place: int, bit: int = 0) -> None:
    """Flip a bit of a file, of the byte at a place that is counted round and round."""
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)


def set_labels(folder, rows, change):
    """Rewrite the index with `change` applied to the list of labels of each of `rows`."""
    columns = files.read_index(folder).to_pydict()
    for row in rows:
        columns["labels"][row] = change(columns["labels"][row])
    files.write_index(folder / files.INDEX, columns)


def assert_same_step(one: nn.Module, other: nn.Module) -> None:
    """Two modules that took the same optimiser step: equal buffers, gradients, and parameters.

    Adam's first step divides a gradient by its own size, so where that is rounding alone the parameters say nothing.
    """
    close = torch.testing.assert_close
    for (name, a), b in zip(one.named_buffers(), other.buffers(), strict=True):
        close(a.float(), b.float(), rtol=1e-4, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), name
        if a.grad is None:
            assert torch.equal(a, b), name
            continue
        largest = float(b.grad.abs().max())
        close(a.grad, b.grad, rtol=1e-3, atol=1e-4 * largest + 1e-7, msg=lambda text, name=name: f"gradient of {name}: {text}")
        told = b.grad.abs() > max(1e-2 * largest, 1e-5)
        close(a[told], b[told], rtol=1e-4, atol=2e-6, msg=lambda text, name=name: f"{name}: {text}")


@cache
def _server() -> str:
    """The socket of this test process's server of processes with the libraries loaded."""
    place, own = str(Path(mkdtemp()) / "socket"), environment() | {"PYTHONPATH": ""}  # it loads no code of ours
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen(64)  # who asks while the libraries load waits
        number = listener.fileno()
        command = [sys.executable, str(ROOT / "tests/warm.py"), str(number)]
        process = subprocess.Popen(command, cwd=ROOT, env=own, pass_fds=[number], stdin=subprocess.PIPE, start_new_session=True)
    atexit.register(process.communicate)  # ends its input, and waits: its processor time is that of the tests
    return place


class Child:
    """Python code in a process of its own that has the libraries loaded."""

    def __init__(self, folder: Path, script: str, *path: Path, words: Sequence[str] = (), code: Path = ROOT, **variables: str):
        """Run `script` in a folder with the code of another; `path`: of more modules; `words`: of the command line."""
        own = environment(code, **variables) | {"PYTHONPATH": os.pathsep.join(map(str, (*path, code)))}
        self._log, self._code = Path(mkdtemp()) / "log", None
        with self._log.open("ab") as log, open(os.devnull) as nothing:
            files = [nothing.fileno(), log.fileno(), log.fileno()]
            self._connection, self.pid = warm.ask(_server(), script, ["child", *words], folder, own, files)

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self.wait(0)[0]

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def output(self) -> str:
        """What it has said so far."""
        return self._log.read_text(encoding="utf-8")

    def wait(self, timeout: float = 600) -> tuple[int | None, str]:
        """Its exit code and what it said, once it has ended."""
        if self._code is None and select.select([self._connection], [], [], timeout)[0]:
            self._code = warm.answer(self._connection)
        return self._code, self.output()


def wait_until(true: Callable[[], object], process: Child | None = None, seconds: float = 120) -> None:
    """Wait until something is so; a process that has to bring it about must not end before."""
    until = time.monotonic() + seconds
    while not true():
        said = "nothing came of it" if process is None else process.output()
        assert time.monotonic() < until and (process is None or process.poll() is None), said
        time.sleep(0.02)


def alive(process: psutil.Process) -> bool:
    """Whether a process runs; one that ended and was not fetched by its parent does not."""
    with suppress(psutil.NoSuchProcess):  # it may end while it is asked
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def stage(folder: Path, *arguments: object, code: Path = ROOT, **variables: str) -> Child:
    """`dicap-stage ARGUMENTS` in a folder, in a process of its own."""
    return Child(folder, warm.STAGE, words=[*map(str, arguments)], code=code, **variables)


def warm_environment(code: Path = ROOT, **more: str) -> dict[str, str]:
    """That of a shell whose `dicap-stage`, `dvc` and `python` begin with the libraries loaded."""
    own = environment(code, **more) | {warm.PLACE: _server()}
    return own | {"PATH": os.pathsep.join([str(ROOT / "tests/bin"), own["PATH"]])}


@contextmanager
def warm_commands() -> Iterator[None]:
    """What is started meanwhile begins with the libraries loaded."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in warm_environment().items():
            patch.setenv(name, value)
        patch.setattr(sys, "executable", str(ROOT / "tests/bin/python"))
        yield


def environment(code: Path = ROOT, **more: str) -> dict[str, str]:
    """That of a command with the code of a folder: nothing of the tests or of a pipeline around them, one thread."""
    left_out = ("DVC_", "DICAP_", "GIT_", "PYTEST_")
    own = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
    path = os.pathsep.join([str(Path(sys.executable).parent), own["PATH"]])
    return own | {"PATH": path, "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1", "DVC_NO_ANALYTICS": "1"} | more
