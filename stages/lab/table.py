"""`dicap-stage table`: compares finished runs with the published tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from dicap.errors import DataError, SettingsError
from dicap.lab.experiments import TABLES, case_mark, row_of
from stages.lab.sweeps.grid import Grid, cells, read_grid
from stages.support.common import changes_option, out_option, params_option, parse_changes
from stages.support.terminal import finish, say

GRIDS = Path("experiments")


@click.command("table")
@click.argument("kind", type=click.Choice(TABLES))
@click.option("--dataset", multiple=True, help="Only this data set; may be repeated.")
@click.option(
    "--grid",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A grid whose cells are rows of the table; may be repeated. Default: the grids in experiments/ that name the table.",
)
@out_option("tables", "Folder.", folder=True)
@click.option("--here/--everywhere", default=True, help="Experiments of the current commit (the default), or of all.")
@changes_option("VALUE", "Show the cells with this value, like a sweep with the same option.")
@params_option
def command(
    kind: str, dataset: tuple[str, ...], grid: tuple[Path, ...], out: Path, here: bool, changes: tuple[str, ...], params: Path
) -> None:
    """Compare finished runs with the published tables.

    A row is a cell of the table's grids (`table: KIND` in a file of experiments/). It collects all runs with the cell's settings,
    at any ratio and seed, made by a sweep or by `dvc exp run`. `main` has a table for every data set and ratio, with the head
    and the steps of each row; a row is compared with labelled-only training with the same head and steps. `readings` compares
    each run with the first run.

    The result is Markdown (printed) and CSV: mean and deviation over seeds, the best row in bold, and the paper's number if
    data set and ratio match. Runs that were neither committed nor saved (dvc exp run, dvc exp save) are missing.
    """
    from dicap.files.written import replacing_own
    from dicap.lab import tables
    from dicap.lab.budgets import budget_tables
    from dicap.lab.experiments import frame_of
    from stages.lab.sweeps.finished import finished

    overrides = parse_changes(changes)
    if several := [key for key, values in overrides.items() if len(values) > 1]:
        raise SettingsError(f"-S {several[0]}: has several values, but a table shows the runs of one value; give one")
    if refused := sorted({"ratio", "seed"} & overrides.keys()):
        raise SettingsError(f"-S {refused[0]}: a table shows the runs of every ratio and seed; leave it out")
    experiments, notes = finished(everywhere=not here)
    if dataset:
        experiments = [experiment for experiment in experiments if experiment["settings"]["dataset"] in dataset]
    kinds = {kind, None} if grid else {kind}  # --grid also accepts a grid that names no table
    plans = [plan for plan in map(read_grid, grid or sorted(GRIDS.glob("*.yaml"))) if plan.table in kinds]
    runs, frame_notes = frame_of(experiments, rows_of(kind, plans, experiments, overrides, params))
    results = [tables.readings_table(runs, plans[0].cases)] if kind == "readings" and not runs.empty else []
    for spec in [] if runs.empty or results else tables.spec_of(kind):
        published = tables.published_numbers(spec)
        if kind == "main":
            results += budget_tables(runs, spec, published)
        else:
            results.append(tables.collect(runs, spec, published))
    results = [table for table in results if table.rows]  # a table may be empty: runs on a CPU have no GPU memory
    if not results:
        reason = "belongs to it" if runs.empty else "has a number for it (a solved head has no minutes per epoch)"
        message = f"table {kind}: no finished run {reason}; run some with dicap-stage sweep, then repeat this command"
        raise DataError("\n".join([*notes, *frame_notes, message]))
    results[-1].notes.extend(notes + frame_notes)
    for ending, write in (("md", tables.to_markdown), ("csv", tables.to_csv)):
        with replacing_own(out / f"{kind}.{ending}") as temporary:
            temporary.write_text("\n".join(write(table) for table in results), encoding="utf-8")
    for table in results:
        say(tables.to_markdown(table))
    finish("table", {"written": [str(out / f"{kind}.{ending}") for ending in ("md", "csv")]})


def rows_of(
    kind: str,
    plans: Sequence[Grid],
    experiments: Sequence[Mapping[str, Any]],
    overrides: Mapping[str, Sequence[Any]],
    params: Path,
) -> dict[str, str]:
    """{`case_mark` of a cell's settings: its row}, for the cells of grids on every data set of the experiments.

    Raises SettingsError if the grids with these overrides are valid on no data set.
    """
    roots = {experiment["settings"]["dataset"]: experiment["settings"]["data_root"] for experiment in experiments}
    rows, refused = {}, None
    for plan in plans:
        first = {key: values[:1] for key, values in plan.axes.items() if key in ("ratio", "seed")}
        for dataset, root in roots.items():
            try:
                planned = cells(plan.override({"dataset": [dataset], "data_root": [root]} | first | dict(overrides)), params)
            except SettingsError as error:
                refused = error
            else:
                rows |= {case_mark(cell.settings): row_of(kind, cell.case, cell.settings) for cell in planned}
    if refused and not rows:
        raise refused
    return rows
