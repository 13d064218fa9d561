"""`dicap-stage figures`: the paper's figures from finished runs."""

from pathlib import Path

import click

from stages.support.common import ARTIFACTS, load, params_option


@click.command("figures")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("figures"), show_default=True, help="Folder."
)
@click.option("--dataset", help="Data set of the runs; the one in the settings if not given.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the runs; the one in the settings if not given.")
@click.option("--ratio", type=click.FloatRange(0, 1, min_open=True), help="Labelled ratio of the run in a, c and d.")
@click.option(
    "--run", "folder", type=click.Path(path_type=Path, file_okay=False), help="Draw this artifacts folder; DVC is not asked."
)
@click.option("--here/--everywhere", default=False, help="Experiments of the current commit, or of all (the default).")
@params_option
def command(
    out: Path, dataset: str | None, seed: int | None, ratio: float | None, folder: Path | None, here: bool, params: Path
) -> None:
    """Draw the paper's figures from finished runs, as SVG and PDF.

    \b
      figure1a  optimal correctness of confidences, early to late
      figure1b  the same at the last epoch, for every labelled ratio that was run (two or more)
      figure1c  estimated and optimal at the first epoch
      figure1d  estimated and optimal at the last epoch

    Prints the error of the estimated curve for each epoch.
    """
    from dicap.report import paper_figures
    from dicap.report.evidence import curve_errors, read_curves
    from dicap.report.style import house_style, save

    if folder is not None:
        chosen, curves = read_curves(folder / "train" / "weights"), {}
    else:
        settings = load(params)
        wanted = (dataset or settings.dataset, settings.seed if seed is None else seed)
        chosen, curves = _from_dvc(params, *wanted, ratio or settings.ratio, here=here)
    with house_style():
        for name, figure in paper_figures.paper_figures(chosen, curves).items():
            for ending in ("svg", "pdf"):
                save(figure, out / f"{name}.{ending}")
            click.echo(f"Drawn: {out / name}.svg, .pdf")
    errors = curve_errors(chosen)
    for epoch, error in zip(errors["epoch"], errors["curve_error"], strict=True):
        click.echo(f"epoch {epoch:>3}  estimated against optimal: {error:.4f}")


def _from_dvc(params: Path, dataset: str, seed: int, ratio: float, *, here: bool):
    """The curves of DiCaP's run at `ratio`, and those of all its ratios on the data set with this seed."""
    import tempfile

    from dicap.errors import DataError
    from dicap.report.evidence import read_curves
    from dicap.report.experiments import frame_of
    from stages.sweeps.finished import fetch, finished

    experiments, notes = finished(params, everywhere=not here)
    runs, more = frame_of(experiments, "main", load(params).model_dump())
    runs = runs[(runs["dataset"] == dataset) & (runs["row"] == "dicap") & (runs["seed"] == seed)]
    for note in [*notes, *more]:
        click.echo(note, err=True)
    curves = {}
    with tempfile.TemporaryDirectory() as folder:
        for run in runs.to_dict("records"):
            weights = fetch(run["rev"], f"{ARTIFACTS}/train/weights", Path(folder))
            if weights is not None:
                curves[round(float(run["ratio"]), 6)] = read_curves(weights)
    if round(ratio, 6) not in curves:
        there = f"; there are ratios {', '.join(map(str, sorted(curves)))}" if curves else ""
        raise DataError(
            f"figures: no finished DiCaP run on {dataset} with ratio {ratio} and seed {seed}{there}; "
            f"--run {ARTIFACTS} draws the workspace"
        )
    return curves[round(ratio, 6)], curves
