"""`dicap-stage evaluate`: mAP on the test images."""

import tempfile
from pathlib import Path
from typing import Any

import click

from stages.support.common import ARTIFACTS, gallery_option, load, machine_options, out_option, params_option
from stages.support.terminal import finish, opening


@click.command("evaluate")
@params_option
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    help="Evaluate this model instead of the pipeline's last. Its results are only printed, unless --out is given.",
)
@out_option(None, "Write to this folder instead of artifacts/evaluate.", folder=True)
@gallery_option
@machine_options
def command(params: Path, model: Path | None, out: Path | None, gallery: Path | None, **runtime) -> None:
    """Score the test images: mAP with its 95 % interval, AP per class, and how often yes and no are right.

    --gallery writes a page that shows the test images by class and answer: right, wrong, missed, unknown.
    """
    from dicap.evaluation.evaluate import evaluate
    from dicap.files.written import check_own_folder
    from dicap.metrics.warnings import headline
    from dicap.plugins import plugged
    from stages.support.environment import environment
    from stages.support.training import open_experiment

    if chosen := out is not None:
        check_own_folder(out)
    settings = load(params)
    experiment = open_experiment(settings, runtime, None if model else "finetune")
    model_path = model or ARTIFACTS / "finetune" / "model.safetensors"
    written = out or (None if model else ARTIFACTS / "evaluate")
    with tempfile.TemporaryDirectory() as scratch:
        folder = written or Path(scratch) / "evaluate"
        result = evaluate(experiment, model_path, folder, environment(), own=chosen)
        page = plugged("gallery of test images")(settings, experiment.store, model_path, folder, gallery) if gallery else None
    facts: dict[str, Any] = {"mAP": round(result["map"], 2)}
    corrected, is_biased = headline(result)
    if is_biased:
        facts["mAP corrected"] = "none: too few test images for a single number" if corrected is None else round(corrected, 2)
    if result["map_low"] is not None:
        facts["95 % interval"] = [round(float(result[key]), 2) for key in ("map_low", "map_high")]
    facts |= {f"mAP {which}": round(result[f"map_{which}"], 2) for which in ("raw", "ema") if f"map_{which}" in result}
    if result["classes_without_positives"]:
        rule = "left out of the mean" if result["classes_left_out"] else "count 0 in the mean"
        facts["classes without positives"] = f"{result['classes_without_positives']}, {rule}"
    facts["test images"] = result["n_test"]
    if "unknown_entries" in result:
        facts["entries unknown"] = result["unknown_entries"]
    facts |= {key: result[key] for key in ("yes", "no", "unsure")}
    for key, title in (("yes_right", "yes right"), ("yes_recall", "positives found"), ("no_right", "no right")):
        facts[title] = "(none)" if result[key] is None else f"{result[key]:.1%}"
    facts[f"always {result['constant']}"] = f"right in {result['constant_right']:.1%}"
    facts["F1 of yes"] = f"{result['f1']:.3f}"
    if result["threshold_best"] is not None:
        facts["F1 at its best"] = (
            f"{result['f1_best']:.3f}, at threshold {result['threshold_best']:.3g}, chosen on held-out labelled images"
        )
    facts["model"] = f"{model_path}: {result['model']} model of {result['stage']}"
    if written is not None:
        facts |= {"numbers": str(written / "details.json"), "model card": str(written / "MODEL_CARD.md")}
    for line in result["warnings"]:
        click.echo(f"Warning: {line}", err=True)
    if page is not None:
        facts["gallery"] = str(page)
    finish("evaluate", facts, [f"dicap-stage predict {model_path} FOLDER" if page is None else opening(page)])
