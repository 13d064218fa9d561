"""A project folder in which the commands run on the tiny set."""

from pathlib import Path

import pytest
import tiny
from project import Project


@pytest.fixture
def bare_project(tmp_path, monkeypatch):
    """A project in which nothing has run, with the working directory in it."""
    project = Project.made(tmp_path / "project")
    monkeypatch.chdir(project.folder)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    return project


@pytest.fixture
def partial_project(bare_project, raw_photos, tmp_path):
    """A project of photographs (`tmp_path`/photos) that are labelled in part, in which nothing has run."""
    bare_project.set(tiny.CHANGES | {"data_root": str(tiny.in_part(raw_photos, tmp_path / "photos"))})
    return bare_project


@pytest.fixture(scope="session")
def finished(raw_photos, tmp_path_factory) -> Path:
    """A project folder in which every stage has run; not to be written to."""
    project = Project.made(tmp_path_factory.mktemp("project"), tiny.CHANGES | {"data_root": str(raw_photos)})
    for stage in ("convert", "split", "warmup", "pseudo-label", "train", "finetune", "evaluate"):
        project.done(stage)
    return project.folder


@pytest.fixture
def project(finished, tmp_path, monkeypatch):
    """A copy of the finished project, with the working directory in it."""
    project = Project(finished).copy(tmp_path / "project")
    monkeypatch.chdir(project.folder)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    return project
