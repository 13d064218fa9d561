"""What a person changes is noticed by `resolve`, and so by DVC: labels, photographs, weights, libraries. Nothing else is."""

import json
import os
import shutil
from importlib import metadata
from pathlib import Path

import pytest
import tiny
from click.testing import CliRunner
from PIL import Image

from stages.cli import main

TRAINED = {"features", "warmup", "pseudo_label", "train", "finetune"}


@pytest.fixture
def own(raw_photos, tmp_path, monkeypatch, partial_project):
    """A project of photographs, more without labels, imported labels and weights of a backbone, all by relative paths."""
    place = partial_project.folder
    shutil.copytree(raw_photos, place / "photos")
    (place / "more").mkdir()
    shutil.copy(raw_photos / "test-000.png", place / "more" / "new.png")
    (place / "labels").mkdir()
    (place / "labels" / "added-0.csv").write_text("image,labels\nunlabeled-000.png,red\n")
    (place / "w.pth").write_bytes(b"weights")
    data = {"data_root": "photos", "own.unlabeled_root": "more", "own.added": "labels/added-0.csv"}
    partial_project.set(data | {"backbone_weights": "w.pth", "warmup.trainable": "head", "train.trainable": "head"})
    return partial_project


def resolved(project):
    """{stage: what it depends on}."""
    project.done("resolve")
    return {path.stem: path.read_bytes() for path in Path("artifacts/resolved").iterdir()}


def rewrite(name, old, new):
    path = Path(name)
    path.write_text(path.read_text().replace(old, new, 1))


def replace_photograph():
    """Another picture in a file of the same size and name."""
    path = Path("photos/train-003.png")
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)


CHANGES = {
    "a label": (lambda: rewrite("photos/labels.csv", "red", "blue"), {"convert"}),
    "a row": (lambda: rewrite("photos/labels.csv", "train-000.png,train,blue\n", ""), {"convert"}),
    "a photograph added": (lambda: shutil.copy("photos/test-001.png", "photos/later.png"), {"convert"}),
    "a photograph removed": (lambda: Path("photos/train-002.png").unlink(), {"convert"}),
    "a photograph replaced": (replace_photograph, {"convert"}),
    "a photograph renamed": (lambda: Path("photos/train-004.png").rename("photos/renamed.png"), {"convert"}),
    "an unlabelled photograph added": (lambda: shutil.copy("photos/test-002.png", "more/later.png"), {"convert"}),
    "an unlabelled photograph repaired": (lambda: Image.new("RGB", (32, 32)).save("more/new.png"), {"convert"}),
    "imported labels": (lambda: rewrite("labels/added-0.csv", "red", "green"), {"convert"}),
    "weights of the same name": (lambda: Path("w.pth").write_bytes(b"weightS"), TRAINED),
}


def test_what_a_person_changes_is_noticed(own, monkeypatch):
    found, before, plain = {}, resolved(own), metadata.version
    for change, (act, _) in CHANGES.items():
        act()
        after = resolved(own)
        found[change] = {stage for stage in before if after[stage] != before[stage]}
        before = after
    for library in ("torch", "timm"):
        monkeypatch.setattr(metadata, "version", lambda name, other=library: "99.0" if name == other else plain(name))
        after = resolved(own)
        found[library] = {stage for stage in before if after[stage] != before[stage]}
        monkeypatch.undo()
        monkeypatch.chdir(own.folder)
    computing = TRAINED | {"evaluate"}
    assert found == {change: stages for change, (_, stages) in CHANGES.items()} | {"torch": computing, "timm": computing}


@pytest.mark.parametrize(
    ("method", "key", "value", "noticed"),
    [
        ("dicap", "iat.threshold", 0.7, {"report"}),
        ("dicap", "cap.eta_pos", 0.9, {"pseudo_label", "train", "report"}),
        ("cap", "bbam.scale", 3.0, {"report"}),
        ("bbam", "bbam.scale", 3.0, {"warmup", "pseudo_label", "train", "report"}),
        ("bbam", "cap.eta_neg", 0.9, {"pseudo_label", "train", "report"}),
        ("bbam", "drml.rounds", 3, {"report"}),
    ],
)
def test_an_option_is_noticed_where_the_method_reads_it(own, method, key, value, noticed):
    own.set({"method": method, "head": None, "warmup.trainable": "all", "train.trainable": "all"})
    before = resolved(own)
    own.set({key: value})
    after = resolved(own)
    assert {stage for stage in before if after[stage] != before[stage]} == noticed


IDLE = (".DS_Store", ".labels.csv.swp", "labels.csv~", "#labels.csv#", ".idea/workspace.xml", "Thumbs.db", "notes.md")


def test_what_is_no_input_is_not_noticed(own):
    before = resolved(own)
    for folder in ("photos", "more"):
        for name in IDLE:
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            (Path(folder) / name).write_bytes(b"anything")
    path = Path("params.yaml")
    path.write_text(path.read_text() + "# why\n")
    assert resolved(own) == before
    os.utime("w.pth")
    assert resolved(own) == before, "the same content"


def test_an_editor_s_files_in_a_package_are_no_code(own, tmp_path, monkeypatch):
    from dicap.provenance import source_code

    package = Path(shutil.copytree(tiny.ROOT / "dicap", tmp_path / "code" / "dicap"))
    names = {"dicap.network", "dicap.data.sources", "dicap.pages"}
    before = source_code.digests(names, package.parent)
    for folder in ("network", "data/sources", "pages/templates"):
        for name in IDLE[:4]:
            (package / folder / name).write_bytes(b"anything")
    assert source_code.digests(names, package.parent) == before
    (package / "pages" / "templates" / "more.html").write_text("<p>")
    assert source_code.digests(names, package.parent) != before


def test_data_in_the_project_s_own_folder_change_by_no_result(own):
    """`init-data .`: what the stages and commands write there is no data."""
    shutil.copytree("photos", ".", dirs_exist_ok=True)
    own.set({"data_root": "."})
    before = resolved(own)
    for name in ("artifacts/report/index.html", "data/converted/meta.json", "suggest/index.html", "dvc.lock"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"anything")
    Path("suggest/.dicap-written.json").write_text(json.dumps({"index.html": [8, 0]}))
    assert resolved(own) == before
    Image.new("RGB", (32, 32)).save("later.png")
    assert resolved(own) != before


def test_relative_paths_mean_the_project_s_files_in_a_cell_too(own, tmp_path, monkeypatch):
    """A cell's clone holds what is committed, neither photographs nor weights. It finds the same ones."""
    before, clone = resolved(own), tmp_path / "clone"
    for name in ("configs", "labels"):
        shutil.copytree(own.folder / name, clone / name)
    shutil.copy(own.folder / "params.yaml", clone)
    monkeypatch.setenv("DICAP_PROJECT", str(own.folder))
    monkeypatch.chdir(clone)
    assert resolved(own) == before
    own.done("convert", "--workers", "0")
    shutil.rmtree(clone / "data" / "converted")
    monkeypatch.delenv("DICAP_PROJECT")
    monkeypatch.setenv("DVC_ROOT", str(own.folder))  # in a run that DVC queued
    assert CliRunner().invoke(main, ["convert", "--workers", "0"]).exit_code == 0
    assert (clone / "data" / "converted").is_dir()
