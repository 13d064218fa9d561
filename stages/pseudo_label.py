"""`dicap-stage pseudo-label`: what the first main epoch would train on."""

from pathlib import Path

import click

from stages.common import ARTIFACTS, params_option, runtime_options
from stages.terminal import finish


@click.command("pseudo-label")
@params_option
@runtime_options
def command(params: Path, fresh: bool, **runtime) -> None:
    """Write the pseudo-labels, weights and thresholds that the first main epoch would train on, to look at."""
    from dicap.artifacts import replacing_folder
    from dicap.catalogue import METHODS
    from dicap.training.loops import first_refresh_of
    from stages.training import open_experiment, start_from

    experiment = open_experiment(params, runtime, "train")
    network = start_from(experiment, ARTIFACTS / "warmup" / "model.safetensors")
    out = ARTIFACTS / "pseudo_label"
    facts = METHODS[experiment.settings.method]
    if not experiment.group.is_main:
        if facts.unlabelled:
            first_refresh_of(experiment.settings)(experiment, network(), out, ARTIFACTS / "warmup")
        return
    with replacing_folder(out) as folder:
        if facts.unlabelled:
            summary = first_refresh_of(experiment.settings)(experiment, network(), folder, ARTIFACTS / "warmup")
            shares = ", ".join(f"{summary[f'share_{name}']:.1%} {name}" for name in ("pos", "neg", "uncertain"))
            text = f"pseudo-label: of the entries {shares}: {out}"
        else:
            text = f"pseudo-label: {facts.title} makes none; {out} is empty"
            (folder / "none.txt").write_text(f"{facts.title} trains on labelled images only.\n", encoding="utf-8")
    look = [f"dicap-stage histogram {out / 'pseudo_labels'}"] if facts.unlabelled else []
    finish("pseudo-label", {"found": text, "folder": str(out)}, look, text=text)
