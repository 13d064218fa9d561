"""`dicap-stage compare`: finished experiments side by side."""

from pathlib import Path

import click

from stages.support.common import ARTIFACTS


@click.command("compare")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("reports"), show_default=True, help="Folder."
)
@click.option("--dataset", multiple=True, help="Only this data set; may be repeated.")
@click.option("--here/--everywhere", default=False, help="Experiments of the current commit, or of all (the default).")
def command(out: Path, dataset: tuple[str, ...], here: bool) -> None:
    """Draw finished experiments side by side.

    Writes OUT/index.html, with a copy of every experiment's own report beside it.
    """
    import tempfile

    from dicap.errors import DataError
    from dicap.files.written import replacing_own
    from dicap.machine.progress import progress
    from dicap.report.comparison import build_comparison
    from stages.sweeps.finished import fetch, finished

    experiments, notes = finished(everywhere=not here)
    if dataset:
        experiments = [experiment for experiment in experiments if experiment["settings"]["dataset"] in dataset]
    if not experiments:
        raise DataError("\n".join([*notes, "compare: no finished run; run some with dvc exp run, then ask again"]))
    reports = {}
    with tempfile.TemporaryDirectory() as folder:
        for experiment in progress(experiments, desc="reports", total=len(experiments), unit="run"):
            rev = experiment["rev"]
            page = fetch(rev, f"{ARTIFACTS}/report/index.html", Path(folder))
            if page is not None:
                reports[rev] = f"{rev[:12]}.html"
                with replacing_own(out / reports[rev]) as temporary:
                    temporary.write_bytes(page.read_bytes())
    page = build_comparison(experiments, out / "index.html", reports)
    for note in notes:
        click.echo(note, err=True)
    click.echo(f"{len(experiments)} runs: {page}")
