"""A project of one's own, made by the wheel alone in an empty folder: what runs in the repository runs there, to the byte."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import tiny
from click.testing import CliRunner

from dicap.settings import change_settings, read_yaml
from stages.cli import main

MODEL = "artifacts/finetune/model.safetensors"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder in which the wheel is installed, and nothing else of the project."""
    place = tmp_path_factory.mktemp("wheel")
    source = tiny.copy_project(place / "source", "tests/", "docs/", "benchmarks/")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(place), str(source)], check=True)
    wheel = next(place.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "site")
    return place / "site"


@pytest.fixture
def environment(site) -> dict[str, str]:
    """Of somebody with the installed package."""
    return tiny.warm_environment(site, **tiny.AUTHOR)


def test_the_wheel_holds_what_a_project_needs(site):
    for path in [*(tiny.ROOT / "configs").glob("*.yaml"), *(tiny.ROOT / "experiments").glob("*.yaml")]:
        assert (site / "dicap" / "project" / path.parent.name / path.name).read_bytes() == path.read_bytes()
    assert (site / "dicap" / "project" / "pipeline.yaml").read_bytes() == (tiny.ROOT / "dvc.yaml").read_bytes()
    for path in (tiny.ROOT / "dicap" / "pages" / "templates").iterdir():
        assert (site / path.relative_to(tiny.ROOT)).exists()


@pytest.mark.pipeline
@pytest.mark.slow
def test_from_an_empty_folder_to_an_exported_model(environment, raw_photos, tmp_path):
    project = tmp_path / "birds"
    said = tiny.typed(f"dicap-stage new birds --from {raw_photos}", tmp_path, environment)
    assert "cd birds" in said and "dvc repro" in said
    change_settings(project / "params.yaml", tiny.SMALL)
    tiny.typed("git commit --quiet --all --message Settings", project, environment)
    tiny.typed("dvc repro", project, environment)
    tiny.typed("git commit --quiet --all --message Results", project, environment)
    assert "Data and pipelines are up to date." in tiny.typed("dvc repro", project, environment)
    tiny.typed(f"dicap-stage predict artifacts/finetune {raw_photos} --out p.csv", project, environment)
    tiny.typed("dicap-stage export artifacts/finetune --out m.onnx", project, environment)

    # The same in a folder beside the repository's code, without DVC.
    other = tmp_path / "clone"
    other.mkdir()
    shutil.copytree(tiny.ROOT / "configs", other / "configs")
    shutil.copy(project / "params.yaml", other)
    code, said = tiny.stage(other, "run").wait()
    assert code == 0, said
    assert (other / MODEL).read_bytes() == (project / MODEL).read_bytes()
    scores = [json.loads((place / "artifacts/evaluate/metrics.json").read_text())["map"] for place in (other, project)]
    assert scores[0] == scores[1]


def test_in_a_project_the_version_stands_for_the_code(environment, tmp_path):
    tiny.typed("dicap-stage new project", tmp_path, environment)
    stages = read_yaml(tmp_path / "project" / "dvc.yaml")["stages"]
    own = read_yaml(tiny.ROOT / "dvc.yaml")["stages"]
    for name, stage in stages.items():
        deps = [dep for dep in own[name]["deps"] if not dep.startswith(("dicap/", "stages/"))]
        assert stage == own[name] | {"deps": [*deps, "requirements.txt"]}


BAD = {
    "a folder that exists": ("full", None, "full: exists and is not empty; name another folder"),
    "no photographs": ("fresh", "empty", "no photographs in a known form"),
    "no such folder": ("fresh/er", "absent", "no such folder"),
    "no such folder, for a project in an empty one": ("hollow", "absent", "no such folder"),
    "a project below a file": ("full/thesis.tex/x", None, "name another folder"),
    "a project among its photographs": ("full/project", "full", "whose photographs would hold the results; make it beside"),
    "a project in a repository": ("versions/project", None, "lies in the Git repository"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_project_that_cannot_be_made_leaves_everything_as_it_was(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("empty", "full", "hollow"):
        Path(folder).mkdir()
    Path("full/thesis.tex").write_text("ten years")
    subprocess.run(["git", "init", "-q", "versions"], check=True)
    before = tiny.content(tmp_path)
    name, source, expected = BAD[case]
    result = CliRunner().invoke(main, ["new", name, *(["--from", source] if source else [])])
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert result.exit_code == 1 and len(errors) == 1 and expected in errors[0]
    assert tiny.content(tmp_path) == before and not Path("fresh").exists()


def test_a_project_is_committed_where_git_knows_nobody(tmp_path, raw_photos):
    environment = tiny.environment(tiny.ROOT, HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path))
    words = [sys.executable, "-m", "stages.cli", "new", "a project", "--from", str(raw_photos), "--separator", ";"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "cd 'a project'" in done.stdout
    git = ["git", "-C", str(tmp_path / "a project")]
    assert not subprocess.check_output([*git, "status", "--porcelain"])
    assert b"separator: ;" in subprocess.check_output([*git, "show", "HEAD:params.yaml"])
    # What DVC compares by its bytes is the same in a clone of somebody whose Git writes the line ends of Windows.
    subprocess.run(["git", "-c", "core.autocrlf=true", "clone", "-q", tmp_path / "a project", tmp_path / "clone"], check=True)
    for name in ("requirements.txt", "labels/README.md", "params.yaml"):
        assert (tmp_path / "clone" / name).read_bytes() == (tmp_path / "a project" / name).read_bytes()


@pytest.mark.parametrize(("asked", "code"), [("99.0", 2), ("0.0.1", 2), (None, 0)])
def test_the_version_that_a_project_asks_for(asked, code, bare_project):
    if asked:
        Path("requirements.txt").write_text(f"dicap=={asked}\n")
    found, _, errors = bare_project.run("check")
    assert found == code
    assert bool(re.search(r"requirements\.txt", errors)) == (asked is not None)
