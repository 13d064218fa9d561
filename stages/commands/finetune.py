"""`dicap-stage finetune`: the head alone, on D_est."""

from pathlib import Path

import click

from stages.support.common import ARTIFACTS, load, params_option, runtime_options


@click.command("finetune")
@params_option
@runtime_options
def command(params: Path, fresh: bool, **runtime) -> None:
    """Train the head alone on D_est, from the main stage's model."""
    settings, source, out = load(params), ARTIFACTS / "train", ARTIFACTS / "finetune"
    if not settings.trains("finetune"):
        from stages.support.passing import publish_previous_model

        return publish_previous_model("finetune", settings, source, out)
    from stages.support.training import open_experiment, run, start_from

    experiment = open_experiment(settings, runtime, "finetune")
    run("finetune", experiment, start_from(experiment, source / "model.safetensors"), source=source, out=out, fresh=fresh)
