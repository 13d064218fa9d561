"""`dicap-stage figures`: the paper's figures from finished runs."""

from pathlib import Path

import click

from stages.common import ARTIFACTS, load, params_option


@click.command("figures")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("figures"), show_default=True, help="Folder."
)
@click.option("--dataset", help="Data set of the runs; the one in the settings if not given.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the runs; the one in the settings if not given.")
@click.option("--ratio", type=click.FloatRange(0, 1, min_open=True), help="Labelled ratio of the run in a, c and d.")
@click.option("--here/--everywhere", default=False, help="Experiments of the current commit, or of all (the default).")
@params_option
def command(out: Path, dataset: str | None, seed: int | None, ratio: float | None, here: bool, params: Path) -> None:
    """Draw the paper's figures from finished runs, as SVG and PDF.

    \b
      figure1a  optimal correctness of confidences, early to late
      figure1b  the same at the last epoch, for every labelled ratio that was run (two or more)
      figure1c  estimated and optimal at the first epoch
      figure1d  estimated and optimal at the last epoch

    Runs are DiCaP's experiments that DVC knows; without any, the artifacts in the workspace are drawn.
    """
    import tempfile

    from dicap.report import paper_figures
    from dicap.report.evidence import curve_errors, read_curves
    from dicap.report.experiments import frame_of
    from dicap.report.style import house_style, save
    from stages.finished import fetch, finished

    settings = load(params)
    dataset, seed, ratio = dataset or settings.dataset, settings.seed if seed is None else seed, ratio or settings.ratio
    experiments, notes = finished(params, everywhere=not here)
    runs, more = frame_of(experiments, "main", settings.model_dump())
    runs = runs[(runs["dataset"] == dataset) & (runs["row"] == "dicap") & (runs["seed"] == seed)]
    curves = {}
    with tempfile.TemporaryDirectory() as folder:
        for run in runs.to_dict("records"):
            weights = fetch(run["rev"], f"{ARTIFACTS}/train/weights", Path(folder))
            if weights is not None:
                curves[round(float(run["ratio"]), 6)] = read_curves(weights)
    shown = round(ratio, 6)
    if shown not in curves:
        click.echo(f"No finished DiCaP run on {dataset} at ratio {ratio} and seed {seed}: drawing {ARTIFACTS}/train.")
        chosen = read_curves(ARTIFACTS / "train" / "weights")
    else:
        chosen = curves[shown]
    with house_style():
        for name, figure in paper_figures.paper_figures(chosen, curves).items():
            for ending in ("svg", "pdf"):
                save(figure, out / f"{name}.{ending}")
            click.echo(f"Drawn: {out / name}.svg, .pdf")
    for row in curve_errors(chosen).itertuples():
        click.echo(f"epoch {row.epoch:>3}  estimated against optimal: {row.curve_error:.4f}")
    for note in [*notes, *more]:
        click.echo(note)
