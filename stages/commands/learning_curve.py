"""`dicap-stage learning-curve`: what more labelled images would give."""

from pathlib import Path
from typing import Any

import click

from stages.support.common import ARTIFACTS, load, machine_options, params_option
from stages.support.terminal import finish


@click.command("learning-curve")
@params_option
@machine_options
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=ARTIFACTS / "learning_curve",
    show_default=True,
    help="Folder of its own for curve.csv and curve.svg; the report shows what lies in the default one.",
)
def command(params: Path, out: Path, fresh: bool, **runtime: Any) -> None:
    """Forecast mAP of twice and four times as many labelled images, by heads on smaller draws of those that there are.

    On the features of the frozen backbone, after `dicap-stage warmup` of a solved head (protocol: recommended). The values are
    those of heads on the labelled images alone; the gain by unlabelled ones comes on top.
    """
    import pandas as pd

    from dicap.errors import DataError, SettingsError
    from dicap.files.written import check_own_folder, replacing_own_folder
    from dicap.linear.learning_curve import corrected, forecast, measure
    from dicap.report import style
    from dicap.report.figures import learning
    from dicap.training.loops.solved import Problem, chosen_loss_weight
    from stages.support.training import open_experiment, start_from

    settings = load(params)
    if not settings.solves("warmup"):
        raise SettingsError("params.yaml: a learning curve needs a solved head on a frozen backbone; set protocol: recommended")
    check_own_folder(out)
    experiment = open_experiment(settings, runtime, "warmup")
    network = start_from(experiment, ARTIFACTS / "warmup" / "model.safetensors")().to(experiment.runtime.device)
    problem = Problem.of(experiment, network, experiment.method.warmup(experiment.roles))
    loss_weight = chosen_loss_weight(ARTIFACTS / "warmup")
    try:
        curve = measure(problem.rows[problem.labelled], problem.y, loss_weight=loss_weight, seed=settings.seed)
    except ValueError as error:
        raise DataError(f"{error}; label more images") from None
    n = len(problem.labelled)
    rows = [("measured", *found) for found in corrected(curve)] + [("forecast", *forecast(curve, k * n)) for k in (1, 2, 4)]
    points = pd.DataFrame(rows, columns=["kind", "images", "map", "low", "high"])
    with replacing_own_folder(out) as folder, style.house_style():
        points.to_csv(folder / "curve.csv", index=False, float_format="%.3f", lineterminator="\n")
        (folder / "curve.svg").write_text(style.to_svg(learning.curve(points)), encoding="utf-8")
    ahead = {
        f"{images} labelled": f"mAP about {value:.1f} (95 % interval {low:.1f} to {high:.1f})"
        for kind, images, value, low, high in rows
        if kind == "forecast"
    }
    finish("learning-curve", ahead | {"curve": str(out / "curve.svg")}, ["dicap-stage suggest"])
