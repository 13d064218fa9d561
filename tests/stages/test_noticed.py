"""What a person changes is noticed by `dvc status`, and which stages would run: labels, photographs, weights, settings, code."""

import os
import shutil
import subprocess
from contextlib import chdir
from pathlib import Path

import pytest
import tiny
from dvc.repo import Repo

from dicap.settings import change_settings, read_yaml
from dicap.settings.methods import METHODS

TRAINED = {"warmup", "pseudo_label", "train", "finetune"}
ALL = {"check", "convert", "features", "split", *TRAINED, "evaluate", "report"}


@pytest.fixture(scope="module")
def finished(raw_photos, tmp_path_factory):
    """A project beside its photographs in which, says dvc.lock, everything has run."""
    place = tmp_path_factory.mktemp("noticed") / "project"
    for name in ("configs", "data", "dicap", "stages", "labels"):
        shutil.copytree(
            tiny.ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "converted", "images.sha256")
        )
    for name in ("dvc.yaml", "params.yaml", ".dvcignore"):
        shutil.copy(tiny.ROOT / name, place)
    shutil.copytree(raw_photos, place.parent / "photos")
    (place.parent / "more").mkdir()
    (place.parent / "lists").mkdir()
    (place.parent / "w.pth").write_bytes(b"weights")
    for path in ("more/new.png", "lists/formatted_val_images.npy"):
        shutil.copy(raw_photos / "test-000.png", place.parent / path)
    (place / "labels" / "added-0.csv").write_text("image,labels\nunlabeled-000.png,red\n")
    paths = {"data_root": "photos", "own.unlabeled_root": "more", "convert.lists": "lists", "weights_file": "w.pth"}
    change_settings(place / "params.yaml", {"dataset": "table"} | {key: str(place.parent / to) for key, to in paths.items()})
    for command in (["git", "init", "-q"], ["dvc", "init", "-q"]):
        subprocess.run(command, cwd=place, check=True)
    with chdir(place):
        repo = Repo()
        for stage in repo.index.stages:
            for out in stage.outs:
                path = Path(out.fs_path)
                (path.parent if path.suffix else path).mkdir(parents=True, exist_ok=True)
                (path if path.suffix else path / "file").write_text(stage.name)
        repo.commit(None, force=True)
    return place


def noticed(finished, act, folder) -> set[str]:
    """The stages that DVC would run after something was done in a folder of the fixture, which is then undone."""
    place = finished.parent
    kept = shutil.copytree(place, f"{place}.kept", symlinks=True)
    with chdir(folder):
        act()
    with chdir(finished):
        stages = {name for name, changes in Repo().status().items() if changes}
    shutil.rmtree(place)
    os.rename(kept, place)
    return stages


def rewrite(name, old, new):
    path = Path(name)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def setting(key, value):
    return lambda: change_settings(Path("params.yaml"), {key: value})


def code(name):
    return lambda: Path(name).write_text(Path(name).read_text() + "\n")


CHANGES = {
    "imported labels": (lambda: rewrite("labels/added-0.csv", "red", "green"), {"check", "convert"}),
    "ratio": (setting("ratio", 0.2), {"check", "split", *TRAINED, "report"}),
    "method": (setting("method", "cap"), {"check", *TRAINED, "evaluate", "report"}),
    "protocol": (setting("protocol", "recommended"), ALL),
    "image_size": (setting("image_size", 64), {"check", "convert", "features", *TRAINED, "report"}),
    "an option of fine-tuning": (setting("finetune.lr", 0.5), {"check", "finetune", "report"}),
    "an option of another method": (setting("iat.threshold", 0.7), {"check", "report"}),
    "the data set's values": (code("configs/table.yaml"), set()),
    "a value of the data set": (lambda: rewrite("configs/table.yaml", "epochs: 24", "epochs: 25"), ALL),
    "a loss": (code("dicap/losses.py"), {*TRAINED, "evaluate"}),
    "another method": (code("dicap/methods/cap.py"), set()),
    "a reader": (code("dicap/photos/readers/table.py"), {"check", "convert"}),
    "a message": (code("dicap/errors.py"), set()),
    "what an editor leaves in the project": (lambda: Path("params.yaml~").write_text("x"), set()),
}


@pytest.mark.promise("`dvc status` and `dvc repro` notice changes of settings and code", section="Experiments and DVC")
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_in_the_project_is_noticed(finished, change):
    act, expected = CHANGES[change]
    assert noticed(finished, act, finished) == expected


BESIDE = {
    "a label": (lambda: rewrite("photos/labels.csv", "red", "blue"), {"check", "convert"}),
    "a photograph added": (lambda: shutil.copy("photos/test-001.png", "photos/later.png"), {"check", "convert"}),
    "a photograph removed": (lambda: Path("photos/train-002.png").unlink(), {"check", "convert"}),
    "a photograph replaced": (lambda: Path("photos/train-003.png").write_bytes(b"another"), {"check", "convert"}),
    "a photograph renamed": (lambda: Path("photos/train-004.png").rename("photos/renamed.png"), {"check", "convert"}),
    "touched": (lambda: os.utime("photos/train-005.png"), set()),
    "an unlabelled photograph": (lambda: shutil.copy("photos/test-002.png", "more/later.png"), {"check", "convert"}),
    "published lists": (lambda: Path("lists/formatted_val_images.npy").write_bytes(b"x"), {"check", "convert"}),
    "weights of the same name": (lambda: Path("w.pth").write_bytes(b"weightS"), {"check", "features", "warmup"}),
}


@pytest.mark.promise(
    "`dvc status` and `dvc repro` notice changes of labels, photographs, published lists and a backbone's file of weights",
    section="Experiments and DVC",
)
@pytest.mark.parametrize("change", BESIDE)
def test_what_is_changed_beside_the_project_is_noticed(finished, change):
    act, expected = BESIDE[change]
    assert noticed(finished, act, finished.parent) == expected


def test_every_method_has_a_section_in_the_settings():
    """`${method}` names one."""
    assert {*METHODS} <= {*read_yaml(tiny.ROOT / "params.yaml")}
