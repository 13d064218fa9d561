"""`dicap-stage train`: the main stage."""

from pathlib import Path

import click

from stages.support.common import ARTIFACTS, load, params_option, runtime_options


@click.command("train")
@params_option
@runtime_options
def command(params: Path, fresh: bool, **runtime) -> None:
    """Main stage: Algorithm 1 of the paper, from the warm-up's model."""
    settings, source, out = load(params), ARTIFACTS / "warmup", ARTIFACTS / "train"
    if not settings.trains("train"):
        from stages.support.passing import publish_previous_model

        return publish_previous_model("train", settings, source, out)
    from stages.support.training import open_experiment, run, start_from

    experiment = open_experiment(settings, runtime, "train")
    run("train", experiment, start_from(experiment, source / "model.safetensors"), source=source, out=out, fresh=fresh)
