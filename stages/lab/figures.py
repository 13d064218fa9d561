"""`dicap-stage figures`: draws a panel of the paper's figures from finished runs."""

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import click

from dicap.errors import DataError
from stages.lab.sweeps.grid import read_grid
from stages.lab.table import GRIDS, rows_of
from stages.support.common import ARTIFACTS, load, out_option, params_option
from stages.support.terminal import finish


@click.command("figures")
@click.argument("panel", type=click.Choice(("1a", "1b", "1c", "1d", "3")))
@out_option("figures", "Folder.", folder=True)
@click.option("--dataset", help="Data set of the runs; default: the one in the settings.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the runs in 1a, 1b, 1c and 3; default: the one in the settings.")
@click.option("--ratio", type=click.FloatRange(0, 1, min_open=True), help="Labelled ratio of the run in 1a, 1c and 3.")
@click.option("--here/--everywhere", default=True, help="Experiments of the current commit (the default), or of all.")
@params_option
def command(panel: str, out: Path, dataset: str | None, seed: int | None, ratio: float | None, here: bool, params: Path) -> None:
    """Draw a panel of the paper's figures from finished runs, as SVG and PDF. Panels have the paper's numbers.

    \b
      1a  curves on labelled and on unlabelled images, after the warm-up: experiments/weighting.yaml
      1b  the optimal curve at the last epoch by labelled ratio: experiments/stability.yaml
      1c  estimated and optimal curve at the first epoch
      1d  mAP with uniform and with estimated weights by labelled ratio: experiments/weighting.yaml
      3   estimated and optimal curve, early and late
    """
    from dicap.lab import paper_figures as paper
    from dicap.report.style import house_style, save

    settings = load(params)
    runs = _runs(panel, params, dataset or settings.dataset, here=here)
    if panel == "1d":
        data: Any = runs[runs["row"].isin(["uniform", "estimated"])]
        if data["row"].nunique() < 2:
            raise DataError("figures 1d: no finished runs with both weights; sweep experiments/weighting.yaml")
    else:
        data = _curves(panel, runs, settings.seed if seed is None else seed, ratio or settings.ratio)
    paths = [out / f"figure{panel}.{ending}" for ending in ("svg", "pdf")]
    with house_style():
        figure = getattr(paper, f"figure_{panel}")(data)
        for path in paths:
            save(figure, path)
    finish("figures", {"drawn": [*map(str, paths)]})


def _runs(panel: str, params: Path, dataset: str, *, here: bool):
    """Finished runs of a panel's grid on the data set."""
    from dicap.lab.experiments import frame_of
    from stages.lab.sweeps.finished import finished

    experiments, notes = finished(everywhere=not here)
    experiments = [experiment for experiment in experiments if experiment["settings"]["dataset"] == dataset]
    grid = read_grid(GRIDS / ("weighting.yaml" if panel in ("1a", "1d") else "stability.yaml"))
    runs, frame_notes = frame_of(experiments, rows_of("figures", [grid], experiments, {}, params))
    for note in [*notes, *frame_notes]:
        click.echo(note, err=True)
    return runs


def _curves(panel: str, runs, seed: int, ratio: float):
    """The curves of the run at `ratio`; for 1b the curves of all ratios, {ratio: curves}."""
    from dvc.api import DVCFileSystem

    from dicap.report.evidence import read_curves

    runs = runs[(runs["row"] == ("labeled" if panel == "1a" else "dicap")) & (runs["seed"] == seed)]
    curves = {}
    with tempfile.TemporaryDirectory() as folder:
        for run in runs.to_dict("records"):
            weights = Path(folder) / run["rev"]
            with contextlib.suppress(FileNotFoundError):  # neither in the cache nor at a remote
                DVCFileSystem(rev=run["rev"]).get(f"{ARTIFACTS}/train/weights", str(weights), recursive=True)
                curves[run["ratio"]] = read_curves(weights)
    found = f"; found ratios {', '.join(map(str, sorted(curves)))}" if curves else ""
    if panel == "1b":
        if len(curves) < 2:
            raise DataError(f"figures 1b: needs finished DiCaP runs of two labelled ratios with seed {seed}{found}")
        return curves
    if round(ratio, 6) not in curves:
        policy = ", calibration.policy labeled" if panel == "1a" else ""
        raise DataError(f"figures {panel}: no finished DiCaP run with ratio {ratio}, seed {seed}{policy}{found}; sweep it first")
    return curves[round(ratio, 6)]
