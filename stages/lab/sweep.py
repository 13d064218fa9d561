"""`dicap-stage sweep`: runs a grid of experiments, on this machine or on a cluster."""

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
CODE = ("configs", "dicap", "stages")  # the code that results depend on, if the project is the program's own repository


@click.command("sweep")
@click.argument("grid", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--dataset", help="The data set of every cell; default: the data set in params.yaml.")
@changes_option("VALUE[,VALUE]", "A value of a setting for every cell, or new values for an axis of the grid (ratio, seed).")
@click.option(
    "--on",
    "engine",
    type=click.Choice([*ENGINES]),
    default="here",
    show_default=True,
    help="This machine, or the engine of a cluster.",
)
@click.option("--jobs", type=click.IntRange(1), help="Cells at a time; default: here 1, on a cluster as many as its nodes hold.")
@click.option("--cpus", type=click.IntRange(1), help="Processor cores per cell; default: here an equal share, on a cluster 1.")
@click.option("--gpus", type=click.IntRange(0), default=0, show_default=True, help="GPUs per cell.")
@click.option("--dry-run", is_flag=True, help="List finished and missing cells; run nothing.")
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

    Each cell is a DVC experiment of the current commit and runs in its own worktree. Images are converted and features computed
    once for all cells that share them. A failed cell is reported and does not stop the other cells; the same command
    then resumes the missing cells. `dicap-stage table` shows the results.
    """
    from stages.lab.sweeps.finished import current_commit, finished

    overrides = parse_changes((*([f"dataset={dataset}"] if dataset else []), *changes))
    plan = read_grid(grid).override(overrides)
    planned = cells(plan, PARAMS)
    reasons = [unread(Settings.model_validate(cell.settings)) for cell in planned]
    for key in {**overrides, **plan.axes}:
        if all(key in reasons_of_cell for reasons_of_cell in reasons):
            click.echo(f"Warning: {key}: nothing reads it in any cell: {reasons[0][key]}", err=True)
    rev = current_commit()
    names = {*git("for-each-ref", "--format=%(refname:lstrip=4)", experiment_ref("", rev)).split()}
    missing = _missing(planned, finished(everywhere=False)[0])
    say(f"{plan.title}: {len(planned)} cells, {len(planned) - len(missing)} finished, {len(missing)} to run")
    facts = {"cells": len(planned), "to run": [cell.name for cell in missing]}
    if dry_run:
        finish("sweep", facts, lines=[f"{'to run  ' if cell in missing else 'finished'}  {cell.name}" for cell in planned])
        return
    if not missing:
        finish("sweep", facts, lines=_how_to_see(plan, grid, overrides))
        return
    _refuse_what_would_be_lost(missing, names)
    check_data(Settings.model_validate(missing[0].settings))  # of one cell: usually all cells have the same data

    running = ENGINES[engine](jobs)
    cpus = cpus or (max(1, cores() // (jobs or 1)) if engine == "here" else 1)
    # Two trainings that each use all cores would slow each other down, and results depend on the number of threads by rounding.
    variables = {key: value for key, value in os.environ.items() if key.startswith(("DICAP_", "OMP_"))}
    needs = {"cpus": cpus, "gpus": gpus, "environment": {"OMP_NUM_THREADS": str(cpus)} | variables}
    jobs_by_cell = {cell.name: cell_job(cell.name, rev, Path.cwd(), cell.changes, **needs) for cell in missing}
    running.check(jobs_by_cell[missing[0].name])
    log_of(Path.cwd(), "").parent.mkdir(parents=True, exist_ok=True)
    failed = _watch(running, jobs_by_cell, rev, plan.title)
    lines = [f"{len(missing) - failed} of {len(missing)} cells finished", *_how_to_see(plan, grid, overrides)]
    finish("sweep", facts | {"failed": failed}, lines=lines)
    if failed:
        raise click.ClickException(f"{failed} cells failed; the same sweep runs them again")


def _missing(planned: Sequence[Cell], runs: Sequence[dict[str, Any]]) -> list[Cell]:
    """The cells without a run of their settings on the current code, labels, photographs and weights."""
    from dvc.dependency import loads_from
    from dvc.repo import Repo
    from dvc.stage import Stage

    stage = Stage(Repo(), "dvc.yaml")

    @cache
    def now(path: str) -> str | None:
        (dep,) = loads_from(stage, [path])
        return dep.get_hash().value if dep.exists else None

    def is_current(run: dict[str, Any]) -> bool:
        return all(now(path) == checksum for path, checksum in run["inputs"].items())

    return [cell for cell in planned if not any(run["settings"] == cell.settings and is_current(run) for run in runs)]


def _watch(engine: Here | Slurm, jobs: Mapping[str, Job], rev: str, title: str) -> int:
    """Run jobs, {cell: job}, show progress and print why cells fail; returns the number of failed cells."""
    from dicap.machine.progress import progress

    names = {job.name: name for name, job in jobs.items()}
    failed = 0
    try:
        with closing(engine.run([*jobs.values()])) as ends:  # closing ends jobs that do not outlive this process
            for job, reason in progress(ends, desc=title, total=len(names), unit="cell"):
                name = names[job]
                # A job that the engine gave up may still have produced its result, on another node.
                if reason is not None and not exists(Path.cwd(), name, rev):
                    log = jobs[name].log
                    click.echo(f"failed: {name}: {reason or reason_in(log)} ({log.relative_to(Path.cwd())})", err=True)
                    failed += 1
    except KeyboardInterrupt:
        if engine.outlives:
            raise click.ClickException(
                "no longer watching, but the cells go on: squeue --me shows them, scancel ends them, the same sweep watches again"
            ) from None
        raise click.ClickException("stopped; the same sweep resumes the cells") from None
    return failed


def _refuse_what_would_be_lost(missing: Sequence[Cell], names: set[str]) -> None:
    """Raise DataError if a worktree would lack uncommitted changes, or if an experiment without a result has a cell's name."""
    status = ("status", "--porcelain", "-z", "--no-renames")  # -z: unquoted names
    changed = [*git(*status, "--untracked-files=no").split("\0"), *git(*status, "--untracked-files=all", "--", *CODE).split("\0")]
    files = {added for cell in missing if (added := cell.settings["own"]["added"]) and not Path(added).is_absolute()}
    untracked = sorted(added for added in files if not git("ls-files", "--", added))
    paths = list(dict.fromkeys([*(line[3:] for line in changed if line), *untracked]))
    if paths:
        remedy = f"git add {shlex.join(paths)} && git commit -m 'My settings'"
        raise DataError(f"{paths[0]}: not committed, and a sweep runs what is committed; first: {remedy}")
    if taken := [cell.name for cell in missing if cell.name in names]:
        others = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
        raise DataError(
            f"{taken[0]}{others}: an experiment with this name exists, but its result is missing, or its labels, photographs "
            f"or code differ from the current ones; to run it again: dvc exp remove {' '.join(taken)}"
        )


def _how_to_see(plan: Grid, grid: Path, overrides: Mapping[str, Sequence[Any]]) -> list[str]:
    """A line with the command that shows the results: the grid's table, with the values that were given to the sweep."""
    if not plan.table:
        return []
    other = [
        f" -S {key}={values[0]}" for key, values in overrides.items() if key not in (*ANY, *plan.chosen) and len(values) == 1
    ]
    option = "" if grid.resolve().parent == GRIDS.resolve() else f" --grid {grid}"
    return [f"To see the results: dicap-stage table {plan.table}{option}{''.join(other)}"]
