"""`dicap-stage finetune`: the head alone, on D_est."""

from pathlib import Path

import click

from stages.common import ARTIFACTS, params_option, runtime_options


@click.command("finetune")
@params_option
@runtime_options
def command(params: Path, fresh: bool, **runtime) -> None:
    """Train the head alone on D_est, from the main stage's model."""
    from dicap.catalogue import METHODS
    from stages.training import hand_on, open_experiment, run, start_from

    experiment = open_experiment(params, runtime, "finetune")
    source, out = ARTIFACTS / "train", ARTIFACTS / "finetune"
    network = start_from(experiment, source / "model.safetensors")
    s = experiment.settings
    if METHODS[s.method].finetunes and s.finetune.enabled and s.calibration.source == "holdout":
        run("finetune", experiment, network, source=source, out=out, fresh=fresh)
    else:
        hand_on("finetune", experiment, source, out)
