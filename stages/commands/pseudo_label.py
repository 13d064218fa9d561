"""`dicap-stage pseudo-label`: the pseudo-labels of the first main epoch."""

from pathlib import Path

import click

from dicap.files.atomic import replacing_folder
from dicap.settings.methods import METHODS
from stages.support.common import ARTIFACTS, load, machine_options, params_option
from stages.support.terminal import finish


@click.command("pseudo-label")
@params_option
@machine_options
def command(params: Path, **runtime) -> None:
    """Write the pseudo-labels, weights and thresholds of the first main epoch, to inspect them before training.

    With a solved head or the recommended rule this is a no-op: the main stage takes seconds and writes them itself.
    """
    settings, out = load(params), ARTIFACTS / "pseudo_label"
    reason = None
    if not settings.trains("train"):
        reason = f"{METHODS[settings.method].title} trains on labelled images only."
    elif settings.solves("train") or settings.recommends:
        reason = f"The main stage solves for the head in seconds, and writes them to {ARTIFACTS / 'train' / 'pseudo_labels'}."
    if reason is not None:
        with replacing_folder(out) as folder:
            (folder / "none.txt").write_text(f"{reason}\n", encoding="utf-8")
        return finish("pseudo-label", {"entries": f"none. {reason}", "folder": str(out)})
    from dicap.training.loops.table import loop_of
    from stages.support.training import open_experiment, start_from

    experiment = open_experiment(settings, runtime, "train")
    network, first_refresh = start_from(experiment, ARTIFACTS / "warmup" / "model.safetensors"), loop_of("pseudo_label", settings)
    with replacing_folder(out) as folder:
        summary = first_refresh(experiment, network(), folder)
    shares = ", ".join(f"{summary[f'share_{name}']:.1%} {name}" for name in ("pos", "neg", "uncertain"))
    finish("pseudo-label", {"entries": shares, "folder": str(out)}, [f"dicap-stage histogram {out / 'pseudo_labels'}"])
