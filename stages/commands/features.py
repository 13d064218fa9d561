"""`dicap-stage features`: what a frozen backbone sees in every image, computed once."""

from pathlib import Path
from typing import Any

import click

from stages.support.common import ARTIFACTS, load, machine_options, params_option
from stages.support.terminal import finish

BANK = ARTIFACTS / "features"


@click.command("features")
@params_option
@machine_options
def command(params: Path, **runtime: Any) -> None:
    """Compute the features of all images, where a stage is to train the head alone.

    They are those of the plain image and, where features.views is not 0, of so many strong views of features.viewed images that
    are no test images, and with all of mirror images, from the backbone as it comes: the same for every method, ratio and seed.
    Those that were computed before, for this set or another, are found again image by image. Where all stages train the whole
    network, nothing is computed.
    """
    from dicap.files.features import write_empty
    from dicap.plugins import plugged

    settings = load(params)
    if settings.needs_features:
        plugged("computing features")(settings, runtime, BANK)
        return
    write_empty(BANK)
    why = "none: no stage trains the head alone (warmup.trainable, train.trainable)"
    finish("features", {"bank": str(BANK), "features": why}, ["dicap-stage warmup"])
