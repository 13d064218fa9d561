"""One cell of a sweep: it makes a worktree of the project, runs `dvc repro` there, and records the result as an experiment.

Worktree, lock and log are in the project's `.dicap/sweep`, checkpoints in its `.dicap/state` (`DICAP_PROJECT`), so that a cell
that was killed on one node resumes on another node.

    python -m stages.lab.sweeps.cell '{"project": FOLDER, "rev": COMMIT, "name": NAME, "changes": {KEY: VALUE}}'
"""

import contextlib
import errno
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import click

from dicap.errors import DataError
from dicap.files.locks import locked
from dicap.settings import change_settings, flatten, read_yaml
from dicap.settings.catalogue import PATHS
from stages.lab.sweeps.engines import BEGIN, Job
from stages.lab.sweeps.finished import LOCK, dvc_config
from stages.support.common import PARAMS
from stages.support.git import git
from stages.support.parent import end_descendants, end_with_parent

EXIT_STOPPED = 75
SHARED = "features"  # the last stage whose result cells of all seeds, ratios and methods share
# DVC sets these for its stages, Git for its hooks. They must be removed, because they point outside of the worktree.
_LEADING = ("DVC_ROOT", "DVC_STAGE", "DVC_EXP_NAME", "DVC_EXP_BASELINE_REV", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")


def cell_job(name: str, rev: str, project: Path, changes: Mapping[str, Any], **resources: Any) -> Job:
    """The job that runs an experiment of a commit.

    Args:
        name: name of the experiment. changes: its settings that differ from params.yaml.
        resources: other attributes of the Job.
    """
    task = {"project": str(project), "rev": rev, "name": name, "changes": dict(changes)}
    command = (sys.executable, "-m", "stages.lab.sweeps.cell", json.dumps(task))
    return Job(job_name(name, rev), command, project, log_of(project, job_name(name, rev)), **resources)


def job_name(name: str, rev: str) -> str:
    """The name of a cell's job, which includes the commit."""
    return f"{name}-{rev[:7]}"


def log_of(project: Path, job: str) -> Path:
    """The log file of a job."""
    return project / ".dicap" / "sweep" / f"{job}.log"


def experiment_ref(name: str, rev: str) -> str:
    """The Git reference of an experiment of a commit."""
    return f"refs/exps/{rev[:2]}/{rev[2:]}/{name}"


def exists(project: Path, name: str, rev: str) -> bool:
    """Whether the project has an experiment of this name and commit."""
    return bool(git("for-each-ref", experiment_ref(name, rev), folder=project).strip())


def run(project: Path, rev: str, name: str, changes: Mapping[str, Any]) -> int:
    """Run one experiment; returns 0 if the project has its result, else DVC's exit code.

    If two sweeps run the same cell, the second waits for the first.
    """
    with locked(log_of(project, job_name(name, rev)).with_suffix(".lock"), wait=True):
        if exists(project, name, rev):
            click.echo(f"{name}: the project has its result")
            return 0
        with _worktree(project, rev, job_name(name, rev)) as folder:
            _prepare(folder, project, changes)
            if (code := _repro(folder, project)) == 0:
                _record(folder, project, name, rev)
    return code


@contextlib.contextmanager
def _worktree(project: Path, rev: str, job: str) -> Iterator[Path]:
    """Make a worktree and yield the project's folder in it; worktrees of the job's killed tries are removed.

    The worktree is written by hand, as `man gitrepository-layout` describes, and Git does not list it: `git worktree add` fails
    if another worktree is incomplete, next to another cell or after a kill (seen with Git 2.39).
    """
    sweep = log_of(project, job).parent
    for killed in sweep.glob(f"{job}.try-*"):
        shutil.rmtree(killed, ignore_errors=True)
    top, common = git("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir", folder=project).splitlines()
    new = Path(tempfile.mkdtemp(prefix=f"{job}.try-", dir=sweep))  # a new name: the training of a killed try may still write
    try:
        for file, text in (("git/HEAD", rev), ("git/commondir", common), ("tree/.git", f"gitdir: {new / 'git'}")):
            (new / file).parent.mkdir(exist_ok=True)
            (new / file).write_text(f"{text}\n", encoding="utf-8")
        git("reset", "--quiet", "--hard", folder=new / "tree")  # a checkout would call the user's hooks
        yield new / "tree" / project.resolve().relative_to(Path(top).resolve())
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _prepare(folder: Path, project: Path, changes: Mapping[str, Any]) -> None:
    """Give a worktree the cell's settings, the project's cache, and links to data that is not committed."""
    from dvc.config import Config

    # Not with DVC's `-S`, whose grammar changes some values of a grid.
    change_settings(folder / PARAMS, changes)
    values = dict(flatten(read_yaml(folder / PARAMS)))
    for path in (str(values[key]) for key in PATHS if values.get(key)):
        if not (folder / path).exists() and (project / path).exists():  # relative, and not committed
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).symlink_to((project / path).resolve())
    if (local := project / ".dvc" / "config.local").is_file():
        shutil.copy2(local, folder / ".dvc")
    cache = dvc_config(project)["cache"]["dir"]
    if Path(cache).is_relative_to(project.resolve()):
        cache = os.path.relpath(cache)  # DVC writes its configuration in ASCII, and the project's own path may have other letters
    with Config(str(folder / ".dvc"), validate=False).edit("local") as config:
        config.setdefault("cache", {})["dir"] = cache  # type: ignore[attr-defined]
    # With a lock file DVC looks only for the results in it. If they are not in the cache, every cell would convert the images
    # again. Without a lock file DVC uses the run cache, which has all results of this project.
    (folder / LOCK).unlink(missing_ok=True)


def _repro(folder: Path, project: Path) -> int:
    """Run DVC in this process, with reflinks disabled; returns its exit code.

    DVC tries a reflink before it copies a file into the cache. Its reflink (dvc-objects 5.2) first empties an existing file of
    the name, and removes the file if the disk does not support reflinks. Another cell may just have stored this file and link to
    it. Without reflinks DVC copies the file under a temporary name and renames it.
    """
    from dvc.cli import main
    from dvc_objects.fs import system

    system.reflink = _no_reflink
    os.environ["DICAP_PROJECT"] = str(project)
    os.environ["DVC_SITE_CACHE_DIR"] = str(folder / ".dvc" / "tmp" / "site")  # else each cell would leave files in /var/tmp
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    with contextlib.chdir(folder):
        # One cell at a time runs the shared stages: the first computes, the others find the results in the run cache.
        with locked(log_of(project, SHARED).with_suffix(".lock"), wait=True):
            code = main(["repro", SHARED])
        # Not `dvc exp run`, which reads the whole pipeline several times to record an experiment: two more seconds per cell.
        return code or main(["repro"])


def _no_reflink(source: str, target: str) -> NoReturn:
    raise OSError(errno.ENOTSUP, "not in a cell", target)


def _record(folder: Path, project: Path, name: str, rev: str) -> None:
    """Record the result as an experiment in DVC's form: a commit on `rev`. An existing experiment is not overwritten."""
    # Reset the times in Git's index: by time and size `seed: 2` would equal a `seed: 1` that was written in the same second.
    git("read-tree", "HEAD", folder=folder)
    for added in ("--update", LOCK):
        git("-c", "core.safecrlf=false", "add", added, folder=folder)
    tree = git("write-tree", folder=folder).strip()
    if tree == git("rev-parse", "HEAD^{tree}", folder=folder).strip():
        return  # the commit itself has this result
    author = git("show", "--no-patch", "--format=user.name=%an%nuser.email=%ae", rev, folder=folder).splitlines()
    identity = [part for option in author for part in ("-c", option)]  # Git's configuration may have no user
    # Not `git commit`, which would run the user's hooks and sign.
    commit = git(*identity, "commit-tree", tree, "-p", rev, "-m", f"dvc: commit experiment {name}", folder=folder).strip()
    git("update-ref", experiment_ref(name, rev), commit, "0" * 40, folder=project)


def _stop(*_: object) -> None:
    """On SIGTERM: let the stage save its checkpoint, then exit."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_descendants(grace=50.0)
    sys.exit(EXIT_STOPPED)


def main() -> None:
    """Run the experiment described by the command line."""
    task = json.loads(sys.argv[1])
    for key in _LEADING:
        os.environ.pop(key, None)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # in order with the stages' output
    end_with_parent()
    signal.signal(signal.SIGTERM, _stop)
    click.echo(f"{BEGIN}{task['name']}: process {os.getpid()} on {os.uname().nodename}, {time.strftime('%Y-%m-%d %H:%M:%S')}")
    try:
        code = run(**task | {"project": Path(task["project"])})
    except DataError as error:
        click.echo(f"Error: {error}")
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
