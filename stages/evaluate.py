"""`dicap-stage evaluate`: mAP on the test images."""

from pathlib import Path

import click

from stages.common import ARTIFACTS, params_option, runtime_options


@click.command("evaluate")
@params_option
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    help="Another model than the pipeline's last; then nothing is written unless --out is given.",
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for metrics.json, per_class.csv, predictions.parquet."
)
@runtime_options
def command(params: Path, model: Path | None, out: Path | None, fresh: bool, **runtime) -> None:
    """Score the test images: mAP by the published rule, AP per class, 95 % interval."""
    import tempfile

    from dicap.training.evaluate import evaluate
    from stages.training import open_experiment

    experiment = open_experiment(params, runtime)
    own = ARTIFACTS / "finetune" / "model.safetensors"
    with tempfile.TemporaryDirectory() as scratch:
        out = out or (Path(scratch) / "evaluate" if model else ARTIFACTS / "evaluate")
        result = evaluate(experiment, model or own, ARTIFACTS, out)
    if not result:  # one of several processes
        return
    interval = f" (95 % interval {result['map_low']:.2f} to {result['map_high']:.2f})" if result["map_low"] is not None else ""
    click.echo(f"mAP {result['map']:.2f}{interval}, {result['model']} model of {result['stage']}, {result['n_test']} test images")
    for which in ("raw", "ema"):
        if which != result["model"] and f"map_{which}" in result:
            click.echo(f"mAP {result[f'map_{which}']:.2f} with its {which} counterpart")
    if result["classes_without_positives"]:
        click.echo(f"{result['classes_without_positives']} classes have no positive test image and count 0 in the mean")
