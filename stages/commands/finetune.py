"""`dicap-stage finetune`: trains the head alone on D_est."""

from pathlib import Path

import click

from stages.support.common import machine_options, params_option
from stages.support.passing import run_from


@click.command("finetune")
@params_option
@machine_options
def command(params: Path, **runtime) -> None:
    """Train the head alone on D_est, starting from the main stage's model."""
    run_from("train", "finetune", params, runtime)
