"""`dicap-stage sweep`: a grid of experiments through DVC's queue."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stages.common import params_option, parse_changes

if TYPE_CHECKING:
    from dicap.grid import Grid


@click.command("sweep")
@click.argument("grid", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--dataset", help="The data set of every cell; default: that of params.yaml.")
@click.option(
    "-S",
    "--set-param",
    "changes",
    multiple=True,
    metavar="KEY=VALUE[,VALUE]",
    help="Another value for every cell; for an axis of the grid (ratio, seed) its values. May be repeated.",
)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Experiments at a time.")
@click.option("--dry-run", is_flag=True, help="List the cells and which of them are finished; run nothing.")
@click.option("--no-wait", is_flag=True, help="Return once the queue has begun; ask `dvc queue status` for more.")
@params_option
def command(
    grid: Path, dataset: str | None, changes: tuple[str, ...], jobs: int, dry_run: bool, no_wait: bool, params: Path
) -> None:
    """Run every cell of GRID (a file of experiments/) that has no result yet.

    Cells are queued as DVC experiments, JOBS at a time. A cell that fails is reported and does not stop the rest; ask again
    and only what is missing runs. `dicap-stage table` then shows the results.
    """
    from dicap.grid import cells, read_grid
    from dicap.progress import progress
    from stages import queue
    from stages.finished import finished

    plan = read_grid(grid).override(({"dataset": [dataset]} if dataset else {}) | parse_changes(changes))
    wanted = cells(plan, params)
    done, _ = finished(params, everywhere=False)
    missing = [cell for cell in wanted if not any(run["settings"] == cell.settings for run in done)]
    click.echo(f"{plan.title}: {len(wanted)} cells, {len(wanted) - len(missing)} finished, {len(missing)} to run")
    if dry_run:
        for cell in wanted:
            click.echo(f"{'to run  ' if cell in missing else 'finished'}  {cell.name}")
        return
    if not missing:
        _show(plan)
        return

    queue.release([cell.name for cell in missing])
    waiting = queue.states()
    for cell in missing:
        if waiting.get(cell.name) not in queue.UNDER_WAY:
            queue.add(cell.name, cell.changes)
    queue.start(jobs)
    names = [cell.name for cell in missing]
    if no_wait:
        click.echo(f"{len(names)} cells queued; dvc queue status tells how far they are")
        return
    failed: list[str] = []
    try:
        for name, state in progress(queue.watch(names, jobs), desc=plan.title, total=len(names), unit="cell"):
            if state != "Success":
                failed.append(name)
                click.echo(f"failed: {name}: {queue.reason(name)}", err=True)
    except KeyboardInterrupt:
        raise click.ClickException(
            "no longer watching; the queue goes on. dvc queue status shows it, dvc queue stop --kill ends it"
        ) from None
    click.echo(f"{len(names) - len(failed)} of {len(names)} cells finished")
    _show(plan)
    if failed:
        raise click.ClickException(f"{len(failed)} cells failed; dvc queue logs NAME shows why, the same sweep runs them again")


def _show(plan: "Grid") -> None:
    """Say how to see the results: the table shows runs that agree with params.yaml unless told of other values."""
    from dicap.report.experiments import FREE

    if plan.table:
        other = [f" -S {key}={value}" for key, value in plan.settings.items() if key not in FREE[plan.table]]
        click.echo(f"To see the results: dicap-stage table {plan.table}{''.join(other)}")
