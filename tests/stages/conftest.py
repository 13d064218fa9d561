"""A project folder in which the commands run on the tiny set."""

import io
import os
import shutil
from contextlib import redirect_stderr
from pathlib import Path

import pytest
import tiny
from click.testing import CliRunner
from ruamel.yaml import YAML


class Project:
    """A folder with params.yaml and configs, and the commands typed in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def set(self, changes):
        """Change dotted keys of params.yaml."""
        path = self.folder / "params.yaml"
        values = YAML(typ="safe", pure=True).load(path.read_text())
        with open(path, "w") as handle:
            YAML().dump(tiny.nested(values, changes), handle)

    def run(self, *arguments):
        """(exit code, stdout, stderr) of `dicap-stage ...`."""
        from stages.cli import main

        bars = io.StringIO()
        with redirect_stderr(bars):  # progress bars are written beside click
            result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr

    def done(self, *arguments):
        """Standard output of a command that must succeed."""
        code, out, errors = self.run(*arguments)
        assert code == 0, errors
        return out

    def suggested(self):
        """The list that `suggest` writes."""
        self.done("suggest")
        return self.folder / "suggest" / "labels.csv"

    def refused(self, *arguments):
        """(exit code, the one line) of a command that must fail as for a user's mistake."""
        code, _, errors = self.run(*arguments)
        lines = [line for line in errors.splitlines() if line.startswith("Error: ")]
        assert code in (1, 2) and len(lines) == 1, (code, errors)
        assert "Traceback" not in errors
        return code, lines[0]


@pytest.fixture
def bare_project(tmp_path, monkeypatch):
    """A project in which nothing has run, with the working directory in it."""
    folder = tmp_path / "project"
    shutil.copytree(tiny.ROOT / "configs", folder / "configs")
    shutil.copy(tiny.ROOT / "params.yaml", folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    return Project(folder)


@pytest.fixture
def partial_project(bare_project, raw_photos, tmp_path):
    """A project of photographs (`tmp_path`/photos) that are labelled in part, in which nothing has run."""
    whole = {"warmup.trainable": "all", "train.trainable": "all"}
    bare_project.set(tiny.CHANGES | whole | {"data_root": str(tiny.in_part(raw_photos, tmp_path / "photos"))})
    return bare_project


@pytest.fixture(scope="session")
def finished(raw_photos, tmp_path_factory) -> Path:
    """A project folder in which every stage has run; not to be written to."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(tiny.ROOT / "configs", folder / "configs")
    shutil.copy(tiny.ROOT / "params.yaml", folder)
    before = Path.cwd()
    os.chdir(folder)
    try:
        project = Project(folder)
        whole = {"warmup.trainable": "all", "train.trainable": "all"}  # configs/table.yaml trains the head alone
        project.set(tiny.CHANGES | whole | {"data_root": str(raw_photos)})
        for stage in ("convert", "split", "warmup", "pseudo-label", "train", "finetune", "evaluate"):
            project.done(stage)
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def project(finished, tmp_path, monkeypatch):
    """A copy of the finished project, with the working directory in it."""
    folder = tmp_path / "project"
    shutil.copytree(finished, folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    return Project(folder)
