"""Runs one stage from its inputs to its published folder: checkpoints, lock, resume, stop."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from dicap.errors import DataError
from dicap.files.artifacts import cost_file
from dicap.files.atomic import replacing, replacing_folder
from dicap.files.checksum import sha256
from dicap.provenance import code_of, settings_of
from dicap.training.checkpoint.state import RunState, StopSignal, fingerprint
from dicap.training.experiment import Experiment
from dicap.training.loops.table import loop_of
from dicap.training.trainer import Log, Trainer


def run_stage(
    stage: str,
    experiment: Experiment,
    network: Callable[[], nn.Module],
    *,
    inputs: list[Path],
    root: Path,
    out: Path,
    log: Log,
    source: Path | None = None,
) -> None:
    """Train one stage, resuming from the checkpoint of an earlier run; publish its products at `out` and its costs beside `out`.

    Args:
        network: makes the initial network.
        inputs: files that the result depends on.
        source: the published folder of the previous stage, for a loop that needs more than its model.
        root: the project's folder, which holds the state folders.

    Raises:
        Stopped: a signal stopped the stage; its checkpoint is saved.
    """
    loop = loop_of(stage, experiment.settings)
    with RunState(root, stage, fingerprint(depends(stage, experiment, inputs)), log) as state, StopSignal() as stop:
        if not state.is_done():
            loop(Trainer(experiment, stage, state, stop, log, source), experiment.place(network()))
        # A signal after the last step is ignored until the finished stage is published.
        with replacing(cost_file(out.parent, stage)) as temporary:
            shutil.copyfile(state.cost, temporary)
            with replacing_folder(out) as folder:
                _copy(state.products, folder)
        state.finish()


def depends(stage: str, experiment: Experiment, inputs: list[Path]) -> dict[str, Any]:
    """Everything that the result of a stage depends on: {settings, code, inputs}; inputs is {name: sha256}."""
    files = {f"{path.parent.name}/{path.name}": sha256(path) for path in inputs}
    if (weights := Path(experiment.settings.backbone_weights)).is_file():
        files["weights of the backbone"] = sha256(weights)
    return {
        "settings": settings_of(stage, experiment.settings),
        "code": code_of(stage, experiment.settings),
        "inputs": {"data set": experiment.store.checksum} | files,
    }


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copytree(source, target, dirs_exist_ok=True)
    except shutil.Error as error:  # a list of failures, each (source, target, reason)
        _, path, reason = error.args[0][0]
        raise DataError(f"{path}: {reason}; make room or choose another disk, and run again: nothing is trained twice") from None
