"""`dicap-stage warmup`: stage 1."""

from pathlib import Path

import click

from stages.support.common import ARTIFACTS, load, machine_options, params_option


@click.command("warmup")
@params_option
@machine_options
def command(params: Path, **runtime) -> None:
    """Train on the labelled images to initialise the model."""
    settings = load(params)
    from dicap.training.loops.warmup import initial_network
    from stages.support.training import open_experiment, run

    experiment = open_experiment(settings, runtime, "warmup")
    run("warmup", experiment, lambda: initial_network(experiment), source=None, out=ARTIFACTS / "warmup")
