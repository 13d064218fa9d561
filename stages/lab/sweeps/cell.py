"""One cell of a sweep, wherever an engine runs it: a worktree of the project, `dvc repro` in it, and an experiment of its result.

Worktree, lock and log lie in the project's `.dicap/sweep`, and what is saved to resume from in `.dicap/state` (`DICAP_PROJECT`),
so that a cell that was killed on one node goes on on another.

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
SHARED = "features"  # the last stage that cells of other seeds, ratios and methods share
# Set by DVC for its stages and by Git for its hooks; they would lead out of the worktree, and the project's own HEAD elsewhere.
_LEADING = ("DVC_ROOT", "DVC_STAGE", "DVC_EXP_NAME", "DVC_EXP_BASELINE_REV", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")


def cell_job(name: str, rev: str, project: Path, changes: Mapping[str, Any], **resources: Any) -> Job:
    """The job that runs an experiment of a commit.

    Args:
        name: of the experiment. changes: its settings that differ from params.yaml.
        resources: what else a Job has.
    """
    task = {"project": str(project), "rev": rev, "name": name, "changes": dict(changes)}
    command = (sys.executable, "-m", "stages.lab.sweeps.cell", json.dumps(task))
    return Job(job_name(name, rev), command, project, log_of(project, job_name(name, rev)), **resources)


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


def run(project: Path, rev: str, name: str, changes: Mapping[str, Any]) -> int:
    """Run one experiment; 0 where the project has its result, else DVC's exit code.

    Of two sweeps that run the same cell the second waits for the first.
    """
    with locked(log_of(project, job_name(name, rev)).with_suffix(".lock"), wait=True):
        if exists(project, name, rev):
            click.echo(f"{name}: the project has its result")
            return 0
        with _worktree(project, rev, job_name(name, rev)) as place:
            _prepare(place, project, changes)
            if (code := _repro(place, project)) == 0:
                _keep(place, project, name, rev)
    return code


@contextlib.contextmanager
def _worktree(project: Path, rev: str, job: str) -> Iterator[Path]:
    """The folder that corresponds to the project's in a worktree of its own; those of the job's killed tries are removed.

    Git does not list it: `git worktree add` fails where another worktree is half made (seen with Git 2.39), as beside another
    cell, or where one was killed. Its folder for Git and the project's common one are files as `man gitrepository-layout` has it.
    """
    sweep = log_of(project, job).parent
    for killed in sweep.glob(f"{job}.try-*"):
        shutil.rmtree(killed, ignore_errors=True)
    top, common = git("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir", folder=project).splitlines()
    place = Path(tempfile.mkdtemp(prefix=f"{job}.try-", dir=sweep))  # another each time: a killed one's training may write still
    try:
        for file, text in (("git/HEAD", rev), ("git/commondir", common), ("tree/.git", f"gitdir: {place / 'git'}")):
            (place / file).parent.mkdir(exist_ok=True)
            (place / file).write_text(f"{text}\n", encoding="utf-8")
        git("reset", "--quiet", "--hard", folder=place / "tree")  # a checkout would call the user's hooks
        yield place / "tree" / project.resolve().relative_to(Path(top).resolve())
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _prepare(place: Path, project: Path, changes: Mapping[str, Any]) -> None:
    """Give a worktree the cell's settings, the project's cache and data that are not committed."""
    from dvc.config import Config

    # Not by DVC's own `-S`: its grammar reads some texts otherwise than they stand in a grid.
    change_settings(place / PARAMS, changes)
    values = dict(flatten(read_yaml(place / PARAMS)))
    for path in (str(values[key]) for key in PATHS if values.get(key)):
        if not (place / path).exists() and (project / path).exists():  # relative, and not committed
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).symlink_to((project / path).resolve())
    if (local := project / ".dvc" / "config.local").is_file():
        shutil.copy2(local, place / ".dvc")
    with Config(str(place / ".dvc"), validate=False).edit("local") as config:
        config.setdefault("cache", {})["dir"] = dvc_config(project)["cache"]["dir"]  # type: ignore[attr-defined]
    # DVC would look for the results in the lock and for no others, and convert the images again in every cell where they are
    # somebody else's; without it the run cache tells what this project has made.
    (place / LOCK).unlink(missing_ok=True)


def _repro(place: Path, project: Path) -> int:
    """Run DVC, in this process, as on a disk without reflinks; its exit code.

    DVC asks the disk for a reflink before it copies a file into the cache. Its reflink (dvc-objects 5.2) first empties the file
    that already has the name, and removes it where the disk knows no reflinks: a file that another cell has just stored, and
    links to. Without reflinks a copy takes the name when it is whole.
    """
    from dvc.cli import main
    from dvc_objects.fs import system

    system.reflink = _no_reflink
    os.environ["DICAP_PROJECT"] = str(project)
    os.environ["DVC_SITE_CACHE_DIR"] = str(place / ".dvc" / "tmp" / "site")  # or each cell would leave a folder in the system's
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    with contextlib.chdir(place):
        # Cells that begin together would each convert and compute: the first does, the others find that in the run cache.
        with locked(log_of(project, SHARED).with_suffix(".lock"), wait=True):
            code = main(["repro", SHARED])
        # Not `dvc exp run`, which reads the whole pipeline again and again to record an experiment: two seconds a cell more.
        return code or main(["repro"])


def _no_reflink(source: str, target: str) -> NoReturn:
    raise OSError(errno.ENOTSUP, "not in a cell", target)


def _keep(place: Path, project: Path, name: str, rev: str) -> None:
    """Make the result an experiment of the project, as DVC records one: a commit on `rev`. An older one is not overwritten."""
    # Without the times in the index, which DVC writes anew: Git would take `seed: 2` for the `seed: 1` of the same second.
    git("read-tree", "HEAD", folder=place)
    for added in ("--update", LOCK):
        git("-c", "core.safecrlf=false", "add", added, folder=place)
    tree = git("write-tree", folder=place).strip()
    if tree == git("rev-parse", "HEAD^{tree}", folder=place).strip():
        return  # the result is that of the commit itself
    author = git("show", "--no-patch", "--format=user.name=%an%nuser.email=%ae", rev, folder=place).splitlines()
    identity = [part for each in author for part in ("-c", each)]  # said by `git -c` or the environment alone, perhaps
    # Not `git commit`, which asks the user's hooks and signs.
    commit = git(*identity, "commit-tree", tree, "-p", rev, "-m", f"dvc: commit experiment {name}", folder=place).strip()
    git("update-ref", experiment_ref(name, rev), commit, "0" * 40, folder=project)


def _stop(*_: object) -> None:
    """Asked to end: let the stage save its state, then end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_descendants(grace=50.0)
    sys.exit(EXIT_STOPPED)


def main() -> None:
    """Run the experiment that the command line describes."""
    task = json.loads(sys.argv[1])
    for key in _LEADING:
        os.environ.pop(key, None)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # what the stages print follows in order
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
