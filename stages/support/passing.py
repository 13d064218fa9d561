"""A stage that the method does not have: the model of the stage before is passed on. No torch is imported for it."""

import os
import shutil
from pathlib import Path

from dicap.errors import DataError
from dicap.settings import Settings
from dicap.settings.methods import METHODS
from stages.support.terminal import finish

FOLLOWING = {"warmup": "train", "train": "finetune", "finetune": "report"}


def hand_on(stage: str, settings: Settings, source: Path, out: Path) -> None:
    """Publish the models of the stage before as those of `stage`, and say so. Raises DataError where there is none."""
    if os.environ.get("RANK", "0") != "0":
        return
    pass_on(stage, source, out)
    text = f"{stage}: {METHODS[settings.method].title} has no such stage; the model of {source} is passed on to {out}"
    finish(
        stage, {"passed on": str(source), "model": str(out / "model.safetensors")}, [f"dvc repro {FOLLOWING[stage]}"], text=text
    )


def pass_on(stage: str, source: Path, out: Path) -> None:
    """Publish the models of the stage before, unchanged, with an empty history and no costs."""
    from dicap.files.artifacts import COST, HISTORY, cost_file, replacing_folder, write_history

    model = source / "model.safetensors"
    if not model.is_file():
        raise DataError(f"{model}: no such file; `dvc repro` makes it")
    write_history([], cost_file(out.parent, stage), COST)
    with replacing_folder(out) as temporary:
        for path in sorted(source.glob("model*.safetensors")):
            shutil.copy2(path, temporary / path.name)
        (temporary / "history.csv").write_text(",".join(HISTORY) + "\n", encoding="utf-8")
