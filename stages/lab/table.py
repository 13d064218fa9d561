"""`dicap-stage table`: finished runs beside the published tables."""

from pathlib import Path

import click

from dicap.errors import DataError, SettingsError
from dicap.settings import changed, read_yaml, resolve_values
from stages.support.common import changes_option, out_option, params_option, parse_changes
from stages.support.terminal import finish, say

KINDS = ("main", "photographs", "ablation", "weighting", "cost", "readings")
GRID = Path("experiments/readings.yaml")


@click.command("table")
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--dataset", multiple=True, help="Only this data set; may be repeated.")
@out_option("tables", "Folder.", folder=True)
@click.option("--here/--everywhere", default=True, help="Experiments of the current commit (the default), or of all.")
@changes_option("VALUE", "Show runs with this setting in place of that of the settings file.")
@params_option
def command(kind: str, dataset: tuple[str, ...], out: Path, here: bool, changes: tuple[str, ...], params: Path) -> None:
    """Set finished runs beside the published tables.

    `main` has a table for every data set and ratio, with the steps of each row; a row is compared with labelled-only
    training with its head and as many steps. `readings` has the runs of experiments/readings.yaml, each beside its first one.

    Collects the experiments that DVC knows into Markdown (printed) and CSV: mean and deviation over seeds, the best in
    bold, the paper's number where data set and ratio match. A run that was not committed or saved (dvc exp run,
    dvc exp save) is not among them.
    """
    from dicap.files.written import replacing_own
    from dicap.lab import tables
    from dicap.lab.budgets import budget_tables
    from dicap.lab.experiments import case_mark, frame_of
    from dicap.lab.readings import readings_table
    from stages.lab.sweeps.finished import finished
    from stages.lab.sweeps.grid import cells, read_grid

    given = parse_changes(changes)
    if several := [key for key, values in given.items() if len(values) > 1]:
        raise SettingsError(f"-S {several[0]}: has several values, of which a table shows the runs of one; give one")
    if unheard := sorted({"ratio", "seed"} & given.keys()):
        raise SettingsError(f"-S {unheard[0]}: a table shows the runs of every ratio and seed; leave it out")
    wanted = {key: values[0] for key, values in given.items()}
    reference = resolve_values(changed(read_yaml(params), wanted), params).settings.model_dump()
    experiments, notes = finished(everywhere=not here)
    if dataset:
        experiments = [experiment for experiment in experiments if experiment["settings"]["dataset"] in dataset]
    grid = read_grid(GRID).override(given) if kind == "readings" else None
    cases = grid and {case_mark(cell.settings): cell.case for cell in cells(grid, params)}
    runs, more = frame_of(experiments, kind, reference, cases)
    made = [readings_table(runs, grid.cases, grid.likelihood)] if grid and not runs.empty else []
    for spec in [] if runs.empty or grid else tables.spec_of(kind):
        published = tables.published_numbers(spec)
        if kind == "main":
            made += budget_tables(runs, spec, published)
        else:
            made.append(tables.collect(runs, spec, published, tables.published_averages(spec)))
    made = [table for table in made if table.rows]  # on a processor nobody knows of a device's memory
    if not made:
        has = "belongs to it" if runs.empty else "has a number for it (a solved head has no minutes per epoch)"
        nothing = f"table {kind}: no finished run {has}; run some with dvc exp run, then ask again"
        raise DataError("\n".join([*notes, *more, nothing]))
    made[-1].notes.extend(notes + more)
    for ending, write in (("md", tables.to_markdown), ("csv", tables.to_csv)):
        with replacing_own(out / f"{kind}.{ending}") as temporary:
            temporary.write_text("\n".join(write(table) for table in made), encoding="utf-8")
    for table in made:
        say(tables.to_markdown(table))
    finish("table", {"written": [str(out / f"{kind}.{ending}") for ending in ("md", "csv")]})
