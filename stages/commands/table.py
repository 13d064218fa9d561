"""`dicap-stage table`: finished runs beside the published tables."""

from pathlib import Path

import click

from stages.support.common import ARTIFACTS, params_option, parse_changes

KINDS = ("main", "photographs", "ablation", "weighting", "cost")


@click.command("table")
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--dataset", multiple=True, help="Only this data set; may be repeated.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("tables"), show_default=True, help="Folder."
)
@click.option("--here/--everywhere", default=False, help="Experiments of the current commit, or of all (the default).")
@click.option("--intervals/--no-intervals", default=True, help="The interval of Delta; needs the runs' predictions.")
@click.option(
    "-S",
    "--set-param",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Show runs with this setting in place of that of the settings file. May be repeated.",
)
@params_option
def command(
    kind: str, dataset: tuple[str, ...], out: Path, here: bool, intervals: bool, changes: tuple[str, ...], params: Path
) -> None:
    """Set finished runs beside the published tables.

    `main` has a table for every data set and ratio, with the steps of each row; a row is compared with labelled-only
    training with its head and as many steps.

    Collects the experiments that DVC knows into Markdown (printed) and CSV: mean and deviation over seeds, the best in
    bold, the second underlined, the paper's number where data set and ratio match. A run that was not committed
    or saved (dvc exp run, dvc exp save) is not among them.
    """
    import tempfile

    from dicap.errors import DataError, SettingsError
    from dicap.files.written import replacing_own
    from dicap.report import tables
    from dicap.report.budgets import budget_tables
    from dicap.report.experiments import frame_of
    from dicap.settings import changed, read_yaml, resolve_values
    from stages.sweeps.finished import finished

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
    runs, more = frame_of(experiments, kind, reference)
    if runs.empty:
        nothing = f"table {kind}: no finished run belongs to it; run some with dvc exp run, then ask again"
        raise DataError("\n".join([*notes, *more, nothing]))
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for spec in tables.spec_of(kind):
            published = tables.published_numbers(spec)
            if kind == "main":
                each = budget_tables(runs, spec, published)
            else:
                each = [(tables.collect(runs, spec, published, tables.published_averages(spec)), runs)]
            for table, its_runs in each:
                if intervals and table.best_other:
                    table.intervals.update(_intervals(table, its_runs, Path(folder)))
                made.append(table)
        made[-1].notes.extend(notes + more)
    for ending, write in (("md", tables.to_markdown), ("csv", tables.to_csv)):
        with replacing_own(out / f"{kind}.{ending}") as temporary:
            temporary.write_text("\n".join(write(table) for table in made), encoding="utf-8")
    for table in made:
        click.echo(tables.to_markdown(table))
    click.echo(f"Written: {out}/{kind}.md, .csv")


def _intervals(table, runs, folder: Path):
    """Interval of Delta for each column, over the seeds of which DVC still has the predictions of both sides."""
    from dicap.report.paired import paired_interval, read_predictions
    from stages.sweeps.revisions import fetch

    found = {}
    for column, other in table.best_other.items():
        here = runs[(runs["dataset"] == column[0]) & (runs["ratio"] == column[1])]
        ours, theirs = (here[here["row"] == row].set_index("seed")["rev"].to_dict() for row in (table.spec.ours, other))
        used, one, two = [], [], []
        for seed in sorted(ours.keys() & theirs.keys()):
            paths = [fetch(revs[seed], f"{ARTIFACTS}/evaluate/predictions.parquet", folder) for revs in (ours, theirs)]
            paths = [path for path in paths if path is not None]
            if len(paths) == 2:
                used.append(seed)
                for side, path in zip((one, two), paths, strict=True):
                    side.append(read_predictions(path))
        if used:
            found[column] = paired_interval(one, two)
        if used and set(used) != ours.keys() | theirs.keys():
            seeds = ", ".join(map(str, used))
            table.notes.append(
                f"The interval of Delta is of seed {seeds} alone: of the others one side has no run or no predictions."
            )
    return found
