"""`dicap-stage train`: the main stage."""

from pathlib import Path

import click

from stages.common import ARTIFACTS, params_option, runtime_options


@click.command("train")
@params_option
@runtime_options
def command(params: Path, fresh: bool, **runtime) -> None:
    """Main stage: Algorithm 1 of the paper, from the warm-up's model."""
    from dicap.catalogue import METHODS
    from stages.training import hand_on, open_experiment, run, start_from

    experiment = open_experiment(params, runtime, "train")
    source, out = ARTIFACTS / "warmup", ARTIFACTS / "train"
    network = start_from(experiment, source / "model.safetensors")
    if METHODS[experiment.settings.method].unlabelled:
        run("train", experiment, network, source=source, out=out, fresh=fresh)
    else:
        hand_on("train", experiment, source, out)
