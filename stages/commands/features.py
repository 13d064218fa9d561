"""`dicap-stage features`: the features of a frozen backbone, computed once per image."""

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
    """Compute the features of all images, if a stage trains only the head.

    The pretrained backbone computes the features of every image. If features.views is V > 0, it also computes them for mirror
    images, and for V strong views of each image outside the test split. Features do not depend on method, ratio or seed, and
    are reused for every set of images. If all stages train the whole network, this is a no-op.
    """
    from dicap.files.features import write_empty
    from dicap.plugins import plugged

    settings = load(params)
    if settings.needs_features:
        plugged("computing features")(settings, runtime, BANK)
        return
    write_empty(BANK)
    reason = "none: no stage trains the head alone (warmup.trainable, train.trainable)"
    finish("features", {"bank": str(BANK), "features": reason}, ["dicap-stage warmup"])
