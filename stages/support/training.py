"""Code of the training commands: opening the experiment, running a stage, printing its results."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from torch import nn

from dicap.data.store import Store
from dicap.machine.processes import keep_freed_memory
from dicap.machine.runtime import Runtime
from dicap.plugins import plugged
from dicap.settings import Settings
from dicap.training.experiment import Experiment
from dicap.training.inputs import FrozenFeatures
from dicap.training.run import run_stage
from stages.support.common import ARTIFACTS, FOLLOWING, data_folder, project_root
from stages.support.terminal import finish

SPLIT = ARTIFACTS / "split" / "split.parquet"


def open_experiment(settings: Settings, runtime: dict[str, Any], stage: str | None = None) -> Experiment:
    """The experiment on the converted data set and the split, on the chosen device."""
    chosen, on_features = Runtime.choose(**runtime), stage is not None and settings.trainable(stage) == "head"
    bank = open_features(settings) if on_features or (stage == "train" and settings.unfreezes) else None
    experiment = Experiment.open(settings, chosen, data_folder(settings), SPLIT, bank)
    # In a stage of a frozen backbone the inputs are its features, also if the main stage unfreezes the backbone later.
    if on_features:
        return experiment.on_bank()
    if chosen.device.type == "cpu":
        keep_freed_memory()
    return experiment


def open_features(settings: Settings) -> FrozenFeatures:
    """The features of the frozen backbone. Raises DataError if the bank does not match the settings."""
    return plugged("features of a frozen backbone")(ARTIFACTS / "features", settings, Store.open(data_folder(settings)))


def start_from(experiment: Experiment, model: Path) -> Callable[[], nn.Module]:
    """A function that makes the experiment's network with a saved model's weights."""
    from dicap.models import check_same_problem, load_weights

    check_same_problem(model, experiment.settings, experiment.store.classes, experiment.split_mark)

    def make() -> nn.Module:
        network = experiment.method.build_network(pretrained=False, stored=experiment.stored_backbone)
        load_weights(network, model)
        return network

    return make


def run(stage: str, experiment: Experiment, network: Callable[[], nn.Module], *, source: Path | None, out: Path) -> None:
    """Run a stage and print its results."""
    inputs = [SPLIT] if source is None else [SPLIT, *sorted(source.glob("*.safetensors"))]
    if experiment.bank is not None:
        inputs.append(ARTIFACTS / "features" / "meta.json")
    run_stage(stage, experiment, network, inputs=inputs, root=project_root(), out=out, log=log_lines, source=source)
    model, facts = out / "model.safetensors", _facts(out)
    finish(stage, facts | {"model": str(model)}, [f"dvc repro {FOLLOWING[stage]}"])


def log_lines(lines: list[str]) -> None:
    """Print lines on stderr."""
    for line in lines:
        click.echo(line, err=True)


def _facts(out: Path) -> dict[str, Any]:
    """Epochs and the last mAP of each network, from history.csv."""
    with (out / "history.csv").open(newline="", encoding="utf-8") as file:
        history = list(csv.DictReader(file))
    facts: dict[str, Any] = {"epochs": len(history)}
    for name in ("map_raw", "map_ema"):
        if measured := [float(row[name]) for row in history if row[name]]:
            facts[f"mAP {name.removeprefix('map_')}"] = round(measured[-1], 2)
    return facts
