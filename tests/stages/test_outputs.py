"""No command removes or replaces what it did not write: every option that names a place to write to, strangers' files there."""

import os
import re
import shutil
from pathlib import Path

import click
import pandas as pd
import pytest
import tiny

from dicap.errors import DataError
from dicap.files.written import replacing_own, replacing_own_folder
from dicap.photos import export
from stages.cli import main
from stages.lab import figures
from stages.lab.sweeps import finished

# Options and arguments that are only read, by name; every other path is written to, and has a line below.
READ = {"params", "model", "images", "folder", "path", "lists", "filled", "unlabeled", "project", "grid", "root", "source"}

MODEL = "artifacts/finetune"
# {(command, option): what is typed, with {} for a place in an empty folder}; one that ends in / is a folder.
TYPED = {
    ("predict", "out"): f"predict {MODEL} photos --out {{}}p.csv",
    ("predict", "gallery"): f"predict {MODEL} photos --out q.csv --gallery {{}}",
    ("export", "out"): f"export {MODEL} --out {{}}m.onnx",
    ("evaluate", "out"): f"evaluate --model {MODEL}/model.safetensors --out {{}}",
    ("evaluate", "gallery"): f"evaluate --model {MODEL}/model.safetensors --gallery {{}}",
    ("count", "out"): f"count photos --model {MODEL} --out {{}}c.csv",
    ("suggest", "out"): "suggest --count 2 --out {}",
    ("review", "out"): "review --count 2 --out {}",
    ("table", "out"): "table main --out {}",
    ("figures", "out"): "figures 1d --out {}",
}


def paths():
    """(command, option) of everything that the commands take as a path."""
    for name in main.list_commands(click.Context(main)):
        command = main.get_command(click.Context(main), name)
        yield from ((name, one.name) for one in command.params if isinstance(one.type, click.Path))


def test_every_option_that_names_a_place_to_write_to_is_tried():
    assert {path for path in paths() if path[1] not in READ} == set(TYPED)


@pytest.fixture
def typed(project, raw_photos, monkeypatch):
    """Types a command with a place to write to: (exit code, the lines of errors)."""
    (project.folder / "photos").mkdir()
    for name in ("test-000.png", "test-001.png"):
        shutil.copy(raw_photos / name, project.folder / "photos")
    (project.folder / "photos" / "broken.png").write_bytes(b"no image")
    (project.folder / "experiments").mkdir()
    (project.folder / "experiments" / "own.yaml").write_text("table: main\naxes: {seed: [1]}\n")
    run = {"name": "a", "rev": "a" * 40, "when": "2026-01-01", "data": "", "settings": tiny.settings().model_dump()}
    run["metrics"] = {"map": 50.0, "map_low": 45.0, "map_high": 55.0, "steps": 10}
    monkeypatch.setattr(finished, "finished", lambda *, everywhere: ([run], []))
    runs = pd.DataFrame({"row": ["uniform", "estimated"], "ratio": [0.1, 0.1], "map": [50.0, 51.0]})
    monkeypatch.setattr(figures, "_runs", lambda *_, **__: runs)
    # What is written, and that it agrees, is the matter of tests/photos/test_export.py, and takes seconds.
    monkeypatch.setattr(export, "write_onnx", lambda scorer, images, path, *_: path.write_bytes(b"a model"))
    monkeypatch.setattr(export, "_reader", lambda path: lambda images: 0.0)
    monkeypatch.setattr(export, "TOLERANCE", float("inf"))

    def type_(option, place):
        text = f"{place}/" if str(place) != "." else "./"
        (project.folder / "q.csv").unlink(missing_ok=True)
        code, _, errors = project.run(*TYPED[option].format(text).split())
        assert "Traceback" not in errors
        return code, [line for line in errors.splitlines() if re.match("(Error|Usage): ", line)]

    return type_


def laid(place, files):
    """A fresh folder with these files in it; what they hold."""
    shutil.rmtree(place, ignore_errors=True)
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    return files


def present(place, files):
    return {name: (place / name).read_bytes() if (place / name).is_file() else None for name in files}


@pytest.mark.promise(
    "No command removes or replaces a file that it did not write, or that was changed since; it refuses before the work is done",
    section="Your files and labels",
)
@pytest.mark.parametrize("option", TYPED, ids="-".join)
def test_a_command_replaces_only_what_it_wrote(project, typed, option):
    place = project.folder / "place"
    place.mkdir()
    for why in ("an empty folder", "its own files it replaces, though DVC wrote them anew"):
        code, errors = typed(option, place)
        assert code == 0, (why, errors)
        for path in place.rglob("*"):
            os.utime(path, (0, 0))
    made = [path for path in sorted(place.rglob("*")) if path.is_file() and not path.name.startswith(".")]
    changed = made[-1]
    changed.write_bytes(changed.read_bytes() + b"by hand")
    kept = {changed.name: changed.read_bytes()}
    code, errors = typed(option, place)
    assert code and len(errors) == 1, f"{changed.name} was changed by hand"
    assert present(changed.parent, kept) == kept

    # A stranger's file, or folder, at each place in which something is written.
    for name in sorted({path.relative_to(place).parts[0] for path in made})[:3]:
        strange = laid(place, {f"{name}/mine.txt" if place / name not in made else name: b"mine"})
        code, errors = typed(option, place)
        assert present(place, strange) == strange, f"{name} is lost"
        assert code and len(errors) == 1, f"{name} was in the way"
    strange = laid(place, {"notes.txt": b"1", "sub/photo.png": b"2", ".hidden": b"3"})
    typed(option, place)
    assert present(place, strange) == strange

    for other in (("predict", "out"), ("predict", "gallery")):  # what another command wrote is no less a stranger's
        if other[1] == option[1] == "gallery" or other == option:  # a gallery is replaced by the next one there
            continue
        laid(place, {})
        typed(other, place)
        others = {name: content for name, content in tiny.content(place).items() if not Path(name).name.startswith(".")}
        typed(option, place)
        assert present(place, others) == others and others, f"what {other} wrote"


def test_of_what_lies_in_each_other_nothing_is_lost(project, typed):
    """A file written into a folder that is replaced as a whole; a gallery among the photographs that are looked at again."""
    _, errors = typed(("predict", "gallery"), "photos/gallery")
    first = Path("q.csv").read_bytes()
    typed(("predict", "gallery"), "photos/gallery")
    assert not errors and Path("q.csv").read_bytes() == first
    code, _, errors = project.run("predict", MODEL, "photos", "--out", "g/p.csv", "--gallery", "g")
    assert code == 2 and "replaces as a whole" in errors and not Path("g").exists()


def test_of_two_that_write_to_one_place_one_is_refused(tmp_path):
    for replaced, path in ((replacing_own, tmp_path / "p.csv"), (replacing_own_folder, tmp_path / "g")):
        with replaced(path) as first:
            (first / "a" if first.is_dir() else first).write_bytes(b"1")
            with pytest.raises(DataError, match="another process is writing"), replaced(path):
                pass
        assert path.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".dicap-written.json", "g", "p.csv"]


@pytest.mark.promise("A command whose output is the current folder removes nothing there", section="Your files and labels")
@pytest.mark.parametrize("option", [option for option, text in TYPED.items() if text.endswith("{}")], ids="-".join)
def test_the_folder_one_works_in_loses_nothing(project, typed, option):
    before = tiny.content(project.folder)
    typed(option, ".")
    after = tiny.content(project.folder)
    assert {name: after.get(name) for name in before} == before
