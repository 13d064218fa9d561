"""`dicap-stage train`: the main stage."""

from pathlib import Path

import click

from stages.support.common import machine_options, params_option
from stages.support.passing import run_from


@click.command("train")
@params_option
@machine_options
def command(params: Path, **runtime) -> None:
    """Main stage: Algorithm 1 of the paper, starting from the warm-up's model."""
    run_from("warmup", "train", params, runtime)
