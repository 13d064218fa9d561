"""One cell of a sweep, wherever an engine runs it: a clone of the project, `dvc repro` in it, the result brought back.

The clone shares the project's Git objects and DVC's cache, and lies on the node's own disk. What is saved to resume from lies in
the project (`DICAP_PROJECT`), so that a cell that was killed on one node goes on on another.

    python -m stages.lab.sweeps.cell --project FOLDER --rev COMMIT --name NAME -S KEY=JSON ...
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from dicap.errors import DataError
from dicap.files.locks import locked
from dicap.settings import change_settings, flatten, read_yaml
from dicap.settings.catalogue import PATHS
from stages.lab.sweeps.engines.base import BEGIN, Job
from stages.lab.sweeps.revisions import LOCK, cache_folder, git, in_cache
from stages.support.common import PARAMS
from stages.support.parent import end_descendants, end_with_parent

EXIT_STOPPED = 75
_SCRATCH = "dicap-cell-"
# Set by DVC for its stages and by Git for its hooks; they would lead out of the clone, and the project's own HEAD elsewhere.
_LEADING = ("DVC_ROOT", "DVC_STAGE", "DVC_EXP_NAME", "DVC_EXP_BASELINE_REV", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
# No hook, signature or ending of a line of the user's own Git may refuse a result.
_PLAIN = ("core.hooksPath=/dev/null", "commit.gpgSign=false", "push.gpgSign=false", "core.safecrlf=false")


def cell_job(
    name: str,
    rev: str,
    project: Path,
    changes: Mapping[str, Any],
    *,
    until: str | None = None,
    **resources: Any,
) -> Job:
    """The job that runs an experiment of a commit.

    Args:
        name: of the experiment. changes: its settings that differ from params.yaml.
        until: run the pipeline up to this stage only and keep no experiment; its results stay in DVC's cache.
        resources: what else a Job has.
    """
    command = [sys.executable, "-m", "stages.lab.sweeps.cell", "--project", str(project), "--rev", rev, "--name", name]
    command += ["--until", until] if until else []
    command += [part for key, value in changes.items() for part in ("-S", f"{key}={json.dumps(value)}")]
    job = job_name(name, rev)
    return Job(job, tuple(command), project, log_of(project, job), **resources)


def job_name(name: str, rev: str) -> str:
    """The name of a cell's job: that of another commit is another job."""
    return f"{name}-{rev[:7]}"


def log_of(project: Path, job: str) -> Path:
    """Where a job's output is kept."""
    return project / ".dicap" / "sweep" / f"{job}.log"


def experiment_ref(name: str, rev: str) -> str:
    """Where Git keeps an experiment of a commit."""
    return f"refs/exps/{rev[:2]}/{rev[2:]}/{name}"


def exists(project: Path, name: str, rev: str) -> bool:
    """Whether the project has an experiment of this name and commit."""
    return bool(git("for-each-ref", experiment_ref(name, rev), folder=project).strip())


@click.command()
@click.option("--project", type=click.Path(path_type=Path, file_okay=False), required=True)
@click.option("--rev", required=True)
@click.option("--name", required=True)
@click.option("--until")
@click.option("-S", "--set-param", "changes", multiple=True, metavar="KEY=JSON")
def main(project: Path, rev: str, name: str, until: str | None, changes: tuple[str, ...]) -> None:
    """Run one experiment of a commit of the project and bring it back."""
    for key in _LEADING:
        os.environ.pop(key, None)
    with _scratch(name) as folder:
        end_with_parent(lambda: _remove(folder.with_name(f"{folder.name}.lock")))
        signal.signal(signal.SIGTERM, _stop)
        click.echo(f"{BEGIN}{name}: process {os.getpid()} on {os.uname().nodename}, {time.strftime('%Y-%m-%d %H:%M:%S')}")
        try:
            code = run(project, rev, name, changes, folder, until)
        except DataError as error:
            click.echo(f"Error: {error}")
            code = 1
    sys.exit(code)


def run(project: Path, rev: str, name: str, changes: tuple[str, ...], folder: Path, until: str | None) -> int:
    """Run one experiment in a clone below `folder`; 0 where the project has its result, else DVC's exit code.

    With `until` the pipeline up to that stage alone, and no experiment is kept.
    """
    clone = _clone(project, rev, folder)
    # Not by DVC's own `-S`: its grammar reads some texts otherwise than they stand in a grid.
    change_settings(clone / PARAMS, {key: json.loads(value) for key, _, value in (change.partition("=") for change in changes)})
    values = dict(flatten(read_yaml(clone / PARAMS)))
    for path in (str(values[key]) for key in PATHS if values.get(key)):
        if not (clone / path).exists() and (project / path).exists():  # relative, and not committed
            (clone / path).parent.mkdir(parents=True, exist_ok=True)
            (clone / path).symlink_to((project / path).resolve())
    environment = os.environ | {
        "DICAP_PROJECT": str(project),
        "DVC_SITE_CACHE_DIR": str(folder / "site"),  # or each clone would leave a folder behind in the system's
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }
    # Not `dvc exp run`, which reads the whole pipeline again and again to record an experiment: two seconds a cell more.
    command = ["repro", *([until] if until else [])]
    if until or not exists(project, name, rev):
        if (code := _dvc(command, clone, environment)) == 0 and not until:
            _bring_back(clone, project, name, rev)
        return code
    click.echo(f"{name}: the project has its result")
    return 0


def _clone(project: Path, rev: str, folder: Path) -> Path:
    """A clone of the project at a commit, with its cache and its author; the folder in it that corresponds to the project's."""
    from dvc.config import Config

    top = Path(git("rev-parse", "--show-toplevel", folder=project).strip())
    clone = folder / "clone"
    options = ["--shared", "--no-checkout", "--origin", "origin", *(part for value in _PLAIN for part in ("--config", value))]
    git("clone", "--quiet", *options, str(top), str(clone), folder=folder)
    git("checkout", "--quiet", "--detach", rev, folder=clone)
    for key, of_commit in (("user.name", "%an"), ("user.email", "%ae")):  # perhaps said in the project alone, or nowhere
        otherwise = git("show", "--no-patch", f"--format={of_commit}", rev, folder=project).strip()
        git("config", key, git("config", "--default", otherwise, "--get", key, folder=project).strip(), folder=clone)
    place = clone / project.resolve().relative_to(top.resolve())
    if (local := project / ".dvc" / "config.local").is_file():
        shutil.copy2(local, place / ".dvc")
    with Config(str(place / ".dvc"), validate=False).edit("local") as config:
        config.setdefault("cache", {})["dir"] = str(cache_folder(project))  # type: ignore[attr-defined]
    _forget_absent(place / "dvc.lock", cache_folder(project))
    return place


def _forget_absent(lock: Path, cache: Path) -> None:
    """Take the stages out of dvc.lock whose results are not in the cache, as after somebody else's run.

    Of a stage whose inputs are those of the lock DVC looks for the lock's results and for no others (seen with DVC 3.67): it
    would convert the images again in every cell, although the run cache holds them.
    """
    from ruamel.yaml import YAML

    if not lock.is_file():
        return
    yaml = YAML()
    content = yaml.load(lock.read_text(encoding="utf-8"))
    stages = content.get("stages") or {}
    absent = [
        name for name, stage in stages.items() if not all(in_cache(cache, o["md5"]).exists() for o in stage.get("outs", []))
    ]
    for name in absent:
        del stages[name]
    if absent:
        with open(lock, "w", encoding="utf-8") as handle:
            yaml.dump(content, handle)


def _dvc(arguments: list[str], folder: Path, environment: dict[str, str]) -> int:
    """Run DVC and print what it prints; its exit code."""
    process = subprocess.Popen(
        [sys.executable, "-m", "stages.lab.sweeps.shared_cache", *arguments],
        cwd=folder, env=environment, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        click.echo(line, nl=False)
    return process.wait()


def _bring_back(clone: Path, project: Path, name: str, rev: str) -> None:
    """Give the project the experiment, as DVC records one: a commit on `rev`; where it has one of this name, the first stays."""
    # Without the times in the index, which DVC writes anew: Git would take `seed: 2` for the `seed: 1` of the same second.
    git("read-tree", "HEAD", folder=clone)
    git("add", "--update", folder=clone)
    git("add", LOCK, folder=clone)
    if not git("status", "--porcelain", "--untracked-files=no", folder=clone):
        return  # the result is that of the commit itself
    git("commit", "--quiet", "--message", f"dvc: commit experiment {name}", folder=clone)
    ref = experiment_ref(name, rev)
    try:
        git("push", "--quiet", f"--force-with-lease={ref}:", "origin", f"HEAD:{ref}", folder=clone)
    except DataError:
        if not exists(project, name, rev):
            raise


@contextlib.contextmanager
def _scratch(name: str) -> Iterator[Path]:
    """A folder of the node's own disk for one cell; those of cells that were killed are removed."""
    for left in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*.lock"):
        with contextlib.suppress(OSError):
            if left.stat().st_uid == os.getuid() and not left.is_symlink():
                with locked(left) as free:
                    if free:
                        _remove(left)
    handle, path = tempfile.mkstemp(".lock", f"{_SCRATCH}{name}-")
    os.close(handle)
    with locked(Path(path), wait=True):
        folder = Path(path.removesuffix(".lock"))
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _remove(Path(path))


def _remove(lock: Path) -> None:
    """The folder of a cell, and then its lock, which is held."""
    shutil.rmtree(str(lock).removesuffix(".lock"), ignore_errors=True)
    lock.unlink(missing_ok=True)


def _stop(*_: object) -> None:
    """Asked to end: let the stage save its state, then end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_descendants(grace=50.0)
    sys.exit(EXIT_STOPPED)


if __name__ == "__main__":
    main()
