"""`dicap-stage sweep`: a grid of experiments, on this machine or on several."""

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import click

from dicap.errors import DataError
from dicap.lab.experiments import ANY
from dicap.machine.processes import cores
from dicap.settings import Settings
from dicap.settings.checks import unread
from stages.commands.check import check_data
from stages.lab.sweeps.cell import cell_job, exists, experiment_ref, log_of
from stages.lab.sweeps.engines import Job, reason_in
from stages.lab.sweeps.engines.here import Here
from stages.lab.sweeps.engines.slurm import Slurm
from stages.lab.sweeps.grid import Cell, Grid, cells, read_grid
from stages.lab.table import GRIDS
from stages.support.common import PARAMS, changes_option, parse_changes
from stages.support.git import git
from stages.support.terminal import finish, say

ENGINES: dict[str, type[Here] | type[Slurm]] = {"here": Here, "slurm": Slurm}
CODE = ("configs", "dicap", "stages")  # what a result depends on where the project is the program's own repository


@click.command("sweep")
@click.argument("grid", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--dataset", help="The data set of every cell; default: the one in params.yaml.")
@changes_option("VALUE[,VALUE]", "Another value for every cell; for an axis of the grid (ratio, seed), its values.")
@click.option(
    "--on",
    "engine",
    type=click.Choice([*ENGINES]),
    default="here",
    show_default=True,
    help="This machine, or a cluster's engine.",
)
@click.option("--jobs", type=click.IntRange(1), help="Cells at a time; default: here 1, on a cluster as many as its nodes hold.")
@click.option("--cpus", type=click.IntRange(1), help="Processor cores of a cell; default: here an equal share, on a cluster 1.")
@click.option("--gpus", type=click.IntRange(0), default=0, show_default=True, help="GPUs of a cell.")
@click.option("--dry-run", is_flag=True, help="List the cells and which of them are finished; run nothing.")
def command(
    grid: Path,
    dataset: str | None,
    changes: tuple[str, ...],
    engine: str,
    jobs: int | None,
    cpus: int | None,
    gpus: int,
    dry_run: bool,
) -> None:
    """Run every cell of GRID (a file of experiments/) that has no result yet.

    Each cell is a DVC experiment of the current commit, run in a worktree of its own; images are converted and features computed
    once for all cells that share them. A cell that fails is reported and does not stop the rest; the same command
    then runs the missing cells, from where they stopped. `dicap-stage table` then shows the results.
    """
    from stages.lab.sweeps.finished import current_commit, finished

    asked = parse_changes((*([f"dataset={dataset}"] if dataset else []), *changes))
    plan = read_grid(grid).override(asked)
    wanted = cells(plan, PARAMS)
    reasons = [unread(Settings.model_validate(cell.settings)) for cell in wanted]
    for key in {**asked, **plan.axes}:
        if all(key in each for each in reasons):
            click.echo(f"Warning: {key}: nothing reads it in any cell: {reasons[0][key]}", err=True)
    rev = current_commit()
    named = {*git("for-each-ref", "--format=%(refname:lstrip=4)", experiment_ref("", rev)).split()}
    missing = _missing(wanted, finished(everywhere=False)[0])
    say(f"{plan.title}: {len(wanted)} cells, {len(wanted) - len(missing)} finished, {len(missing)} to run")
    facts = {"cells": len(wanted), "to run": [cell.name for cell in missing]}
    if dry_run:
        finish("sweep", facts, lines=[f"{'to run  ' if cell in missing else 'finished'}  {cell.name}" for cell in wanted])
        return
    if not missing:
        finish("sweep", facts, lines=_how_to_see(plan, grid, asked))
        return
    _refuse_what_would_be_lost(missing, named)
    check_data(Settings.model_validate(missing[0].settings))  # of one: as a rule all cells have the same

    running = ENGINES[engine](jobs)
    cpus = cpus or (max(1, cores() // (jobs or 1)) if engine == "here" else 1)
    # Two trainings with all cores each would wait for one another, and another number of threads rounds differently.
    variables = {key: value for key, value in os.environ.items() if key.startswith(("DICAP_", "OMP_"))}
    needs = {"cpus": cpus, "gpus": gpus, "environment": {"OMP_NUM_THREADS": str(cpus)} | variables}
    planned = {cell.name: cell_job(cell.name, rev, Path.cwd(), cell.changes, **needs) for cell in missing}
    running.check(planned[missing[0].name])
    log_of(Path.cwd(), "").parent.mkdir(parents=True, exist_ok=True)
    failed = _watch(running, planned, rev, plan.title)
    lines = [f"{len(missing) - failed} of {len(missing)} cells finished", *_how_to_see(plan, grid, asked)]
    finish("sweep", facts | {"failed": failed}, lines=lines)
    if failed:
        raise click.ClickException(f"{failed} cells failed; the same sweep runs them again")


def _missing(wanted: Sequence[Cell], done: Sequence[dict[str, Any]]) -> list[Cell]:
    """The cells of whose settings no run is made of today's code, labels, photographs and weights."""
    from dvc.dependency import loads_from
    from dvc.repo import Repo
    from dvc.stage import Stage

    stage = Stage(Repo(), "dvc.yaml")

    @cache
    def now(path: str) -> str | None:
        (dep,) = loads_from(stage, [path])
        return dep.get_hash().value if dep.exists else None

    def is_of_today(run: dict[str, Any]) -> bool:
        return all(now(path) == checksum for path, checksum in run["inputs"].items())

    return [cell for cell in wanted if not any(run["settings"] == cell.settings and is_of_today(run) for run in done)]


def _watch(engine: Here | Slurm, planned: Mapping[str, Job], rev: str, title: str) -> int:
    """Run the jobs of cells by name, show progress and say why cells fail; how many did."""
    from dicap.machine.progress import progress

    names = {job.name: name for name, job in planned.items()}
    failed = 0
    try:
        with closing(engine.run([*planned.values()])) as ends:  # closed, it ends what does not outlive it
            for job, why in progress(ends, desc=title, total=len(names), unit="cell"):
                name = names[job]
                # One that the engine gave up may have been brought back all the same, by a run of it on another node.
                if why is not None and not exists(Path.cwd(), name, rev):
                    log = planned[name].log
                    click.echo(f"failed: {name}: {why or reason_in(log)} ({log.relative_to(Path.cwd())})", err=True)
                    failed += 1
    except KeyboardInterrupt:
        if engine.outlives:
            raise click.ClickException(
                "no longer watching, but the cells go on: squeue --me shows them, scancel ends them, the same sweep watches again"
            ) from None
        raise click.ClickException("stopped; the same sweep goes on from where the cells were") from None
    return failed


def _refuse_what_would_be_lost(missing: Sequence[Cell], named: set[str]) -> None:
    """Raise DataError where a worktree lacks what this folder has, or an experiment without a result has a cell's name."""
    status = ("status", "--porcelain", "-z", "--no-renames")  # -z: names as they are, whatever is in them
    changed = [*git(*status, "--untracked-files=no").split("\0"), *git(*status, "--untracked-files=all", "--", *CODE).split("\0")]
    given = {added for cell in missing if (added := cell.settings["own"]["added"]) and not Path(added).is_absolute()}
    unknown = sorted(added for added in given if not git("ls-files", "--", added))
    paths = list(dict.fromkeys([*(line[3:] for line in changed if line), *unknown]))
    if paths:
        first = f"git add {shlex.join(paths)} && git commit -m 'My settings'"
        raise DataError(f"{paths[0]}: not committed, and a sweep runs what is committed; first: {first}")
    if taken := [cell.name for cell in missing if cell.name in named]:
        others = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
        raise DataError(
            f"{taken[0]}{others}: there is an experiment of this name whose result is gone, or of other labels, photographs "
            f"or code than now; to run it again: dvc exp remove {' '.join(taken)}"
        )


def _how_to_see(plan: Grid, grid: Path, asked: Mapping[str, Sequence[Any]]) -> list[str]:
    """A line that says how to see the results: a table shows the cells of its grids, with the values that the sweep was given."""
    if not plan.table:
        return []
    other = [f" -S {key}={values[0]}" for key, values in asked.items() if key not in (*ANY, *plan.chosen) and len(values) == 1]
    where = "" if grid.resolve().parent == GRIDS.resolve() else f" --grid {grid}"
    return [f"To see the results: dicap-stage table {plan.table}{where}{''.join(other)}"]
