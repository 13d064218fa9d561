"""`dicap-stage learning-curve`: what more labelled images would give."""

from pathlib import Path
from typing import Any

import click

from dicap.errors import DataError, SettingsError
from dicap.files.atomic import replacing_folder
from stages.support.common import ARTIFACTS, load, machine_options, params_option
from stages.support.terminal import finish


@click.command("learning-curve")
@params_option
@machine_options
def command(params: Path, **runtime: Any) -> None:
    """Forecast what twice and four times as many labelled images would add to mAP, by heads on smaller draws of those there are.

    On the features of the frozen backbone, after `dicap-stage warmup` of a solved head (protocol: recommended). The heads learn
    from labelled images alone; what unlabelled ones add gets less with more labels (docs/photographs.md).
    Writes artifacts/learning_curve (curve.csv, curve.svg), which the report shows.
    """
    import pandas as pd

    from dicap.frozen.learning_curve import corrected, gain, measure
    from dicap.frozen.loops.solved import Problem, chosen_loss_weight
    from dicap.report import style
    from dicap.report.figures import learning
    from stages.support.training import open_experiment, start_from

    settings = load(params)
    if not settings.solves("warmup"):
        raise SettingsError("params.yaml: a learning curve needs a solved head on a frozen backbone; set protocol: recommended")
    experiment = open_experiment(settings, runtime, "warmup")
    network = start_from(experiment, ARTIFACTS / "warmup" / "model.safetensors")().to(experiment.runtime.device)
    problem = Problem.of(experiment, network, experiment.method.warmup(experiment.roles))
    loss_weight = chosen_loss_weight(ARTIFACTS / "warmup")
    try:
        curve = measure(problem.rows[problem.labelled], problem.y, loss_weight=loss_weight, seed=settings.seed)
    except ValueError as error:
        raise DataError(f"{error}; label more images") from None
    n, measured = len(problem.labelled), corrected(curve)
    last = measured[-1]
    rows = [("measured", *found) for found in measured] + [("forecast", last.images, *[last.value] * 3)]
    for images in (n, 2 * n, 4 * n):
        rows.append(("forecast", images, *(last.value + points for points in gain(curve, last.images, images)[1:])))
    points = pd.DataFrame(rows, columns=["kind", "images", "map", "low", "high"])
    with replacing_folder(ARTIFACTS / "learning_curve") as folder, style.house_style():
        points.to_csv(folder / "curve.csv", index=False, float_format="%.3f", lineterminator="\n")
        (folder / "curve.svg").write_text(style.to_svg(learning.curve(points)), encoding="utf-8")
    ahead = {}
    for images in (2 * n, 4 * n):
        _, more, low, high = gain(curve, n, images)
        ahead[f"{images} labelled"] = f"{more:+.1f} mAP (95 % interval {low:+.1f} to {high:+.1f})"
    facts = {"labelled now": n} | ahead | {"curve": str(ARTIFACTS / "learning_curve" / "curve.svg")}
    finish("learning-curve", facts, ["dicap-stage report", "dicap-stage suggest"])
