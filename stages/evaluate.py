"""`dicap-stage evaluate`: mAP on the test images."""

from pathlib import Path
from typing import Any

import click

from stages.common import ARTIFACTS, engine_option, params_option, runtime_options
from stages.terminal import finish


@click.command("evaluate")
@params_option
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    help="Another model than the pipeline's last; then nothing is written unless --out is given.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for metrics.json, per_class.csv, predictions.parquet, MODEL_CARD.md.",
)
@engine_option
@runtime_options
def command(params: Path, model: Path | None, out: Path | None, engine: str, fresh: bool, **runtime) -> None:
    """Score the test images: mAP by the published rule, AP per class, 95 % interval."""
    import tempfile

    from dicap.evaluation.evaluate import evaluate
    from stages.environment import environment
    from stages.training import open_experiment

    experiment = open_experiment(params, runtime, None if model else "finetune")
    own = ARTIFACTS / "finetune" / "model.safetensors"
    written = out or (None if model else ARTIFACTS / "evaluate")
    with tempfile.TemporaryDirectory() as scratch:
        out = out or (Path(scratch) / "evaluate" if model else ARTIFACTS / "evaluate")
        result = evaluate(experiment, model or own, ARTIFACTS, out, environment(), engine=engine)
    if not result:  # one of several processes
        return
    interval = f" (95 % interval {result['map_low']:.2f} to {result['map_high']:.2f})" if result["map_low"] is not None else ""
    lines = [f"mAP {result['map']:.2f}{interval}, {result['model']} model of {result['stage']}, {result['n_test']} test images"]
    for which in ("raw", "ema"):
        if which != result["model"] and f"map_{which}" in result:
            lines.append(f"mAP {result[f'map_{which}']:.2f} with its {which} counterpart")
    if result["classes_without_positives"]:
        lines.append(f"{result['classes_without_positives']} classes have no positive test image and count 0 in the mean")
    facts: dict[str, Any] = {"mAP": round(result["map"], 2)}
    if interval:
        facts["95 % interval"] = [round(float(result[key]), 2) for key in ("map_low", "map_high")]
    facts |= {f"mAP {which}": round(result[f"map_{which}"], 2) for which in ("raw", "ema") if f"map_{which}" in result}
    facts |= {"test images": result["n_test"], "share decided": round(result["decided"], 3)}
    if result["decided_right"] is not None:
        facts["share of these right"] = round(float(result["decided_right"]), 3)
    facts["model"] = str(model or own)
    if written is not None:
        facts |= {"numbers": str(written / "metrics.json"), "model card": str(written / "MODEL_CARD.md")}
    finish("evaluate", facts, [f"dicap-stage predict {model or own} FOLDER"], text="\n".join(lines))
