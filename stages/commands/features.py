"""`dicap-stage features`: what a frozen backbone sees in every image, computed once."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dicap.files.atomic import replacing_folder
from dicap.machine.processes import keep_freed_memory
from stages.support.common import ARTIFACTS, data_folder, known_results, load, machine_options, params_option, placed
from stages.support.terminal import finish

if TYPE_CHECKING:
    from dicap.settings import Settings

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
    from dicap.features.folder import write_empty

    settings = placed(load(params))
    if settings.needs_features:
        _compute(settings, runtime)
        return
    write_empty(BANK)
    why = "none: no stage trains the head alone (warmup.trainable, train.trainable)"
    finish("features", {"bank": str(BANK), "features": why}, ["dicap-stage warmup"])


def _compute(settings: "Settings", runtime: dict[str, Any]) -> None:
    import torch

    from dicap.data.store import Store
    from dicap.features.accelerated import accelerated
    from dicap.features.compute import fill
    from dicap.features.folder import BACKBONE
    from dicap.features.recipe import Recipe, pretrained_network
    from dicap.machine.runtime import Runtime
    from dicap.network.stored import save_backbone
    from dicap.provenance.dependencies import code
    from dicap.training.checkpoint.state import StopSignal

    chosen = Runtime.choose(**runtime)
    store = Store.open(data_folder(settings), settings.image_size)
    network = pretrained_network(settings).to(chosen.device)
    recipe = Recipe.of(settings, store, network)
    if chosen.device.type == "cpu":
        keep_freed_memory()
    known = known_results("features")
    computing, by = network, ["torch", torch.__version__]
    if chosen.amp is None:
        options = store.image_size, chosen.device, known_results("backbones")
        computing, by = accelerated(network, recipe.most_computed, *options)
    # Features of two packages or versions, or of a processor and a GPU, differ in their last bits: a bank is of one.
    by += [str(chosen.amp or torch.float32).removeprefix("torch."), chosen.device.type]
    made_by = {"engine": by, "code": code("features", settings)}
    with StopSignal() as stop, replacing_folder(BANK) as folder:
        begin = time.perf_counter()
        computed = fill(
            folder, recipe, store, computing, known=known, made_by=made_by, device=chosen.device, workers=chosen.workers,
            autocast=chosen.amp, stopping=lambda: bool(stop),
        )  # fmt: skip
        seconds = time.perf_counter() - begin
        save_backbone(network.backbone, folder / BACKBONE)
    facts: dict[str, Any] = {
        "images": store.n,
        "views": len(recipe.files),
        "bytes an image": recipe.bytes_per_image,
        "images computed": computed,
        "computed by": " ".join(by),
        "images a second": round(computed / max(seconds, 1e-9), 1),
        "bank": str(BANK),
    }
    finish("features", facts, ["dicap-stage warmup"])
