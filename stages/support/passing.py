"""A stage that the method does not have publishes the model of the stage before. No torch is imported for it."""

import shutil
from pathlib import Path

from dicap.errors import DataError
from dicap.machine.processes import is_main
from dicap.settings import Settings
from dicap.settings.methods import METHODS
from stages.support.terminal import finish

FOLLOWING = {"warmup": "train", "train": "finetune", "finetune": "report"}


def publish_previous_model(stage: str, settings: Settings, source: Path, out: Path) -> None:
    """Publish the models in `source` as those of `stage`, with an empty history and no costs. Raises DataError."""
    from dicap.files.artifacts import COST, HISTORY, cost_file, write_history
    from dicap.files.atomic import replacing_folder

    if not is_main():
        return
    model = source / "model.safetensors"
    if not model.is_file():
        raise DataError(f"{model}: no such file; `dvc repro` makes it")
    write_history([], cost_file(out.parent, stage), COST)
    with replacing_folder(out) as temporary:
        for path in sorted(source.glob("model*.safetensors")):
            shutil.copy2(path, temporary / path.name)
        (temporary / "history.csv").write_text(",".join(HISTORY) + "\n", encoding="utf-8")
    why = f"the model of {source}, since {METHODS[settings.method].title} has no such stage"
    finish(stage, {"passed on": why, "model": str(out / "model.safetensors")}, [f"dvc repro {FOLLOWING[stage]}"])
