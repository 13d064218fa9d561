"""Runs a stage that starts from the previous model. If the method has no such stage, the model is copied, without torch."""

import shutil
from pathlib import Path
from typing import Any

from dicap.errors import DataError
from dicap.files.atomic import replacing_folder
from dicap.settings.methods import METHODS
from stages.support.common import ARTIFACTS, FOLLOWING, load
from stages.support.terminal import finish


def run_from(before: str, stage: str, params: Path, runtime: dict[str, Any]) -> None:
    """Run a stage from the models that the stage `before` published. If the method has no such stage, copy these models.

    History and costs of a copied stage are empty. Raises DataError.
    """
    settings, source, out = load(params), ARTIFACTS / before, ARTIFACTS / stage
    model = source / "model.safetensors"
    if settings.trains(stage):
        from stages.support.training import open_experiment, run, start_from

        experiment = open_experiment(settings, runtime, stage)
        run(stage, experiment, start_from(experiment, model), source=source, out=out)
        return
    from dicap.files.artifacts import COST, HISTORY, cost_file, write_history

    if not model.is_file():
        raise DataError(f"{model}: no such file; `dvc repro` makes it")
    write_history([], cost_file(ARTIFACTS, stage), COST)
    with replacing_folder(out) as temporary:
        for path in sorted(source.glob("model*.safetensors")):
            shutil.copy2(path, temporary / path.name)
        (temporary / "history.csv").write_text(",".join(HISTORY) + "\n", encoding="utf-8")
    text = f"the model of {source}, because {METHODS[settings.method].title} has no such stage"
    finish(stage, {"passed on": text, "model": str(out / "model.safetensors")}, [f"dvc repro {FOLLOWING[stage]}"])
