"""Computes the features of a frozen backbone, for `dicap-stage features`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dicap.files.atomic import replacing_folder
from dicap.machine.processes import keep_freed_memory
from stages.support.common import data_folder, known_results
from stages.support.terminal import finish

if TYPE_CHECKING:
    from dicap.settings import Settings


def compute(settings: Settings, runtime: dict[str, Any], out: Path) -> None:
    """Compute the features for the settings and write the bank to the folder `out`."""
    import torch

    from dicap.data.store import Store
    from dicap.files.features import BACKBONE
    from dicap.frozen.features.accelerated import accelerated
    from dicap.frozen.features.compute import fill
    from dicap.frozen.features.recipe import Recipe, pretrained_network
    from dicap.machine.runtime import Runtime
    from dicap.network.stored import save_backbone
    from dicap.provenance import code_of
    from dicap.training.checkpoint.state import StopSignal

    chosen = Runtime.choose(**runtime)
    store = Store.open(data_folder(settings), settings.image_size)
    network = pretrained_network(settings).to(chosen.device)
    recipe = Recipe.of(settings, store, network)
    if chosen.device.type == "cpu":
        keep_freed_memory()
    known = known_results("features")
    computing, engine = network, ["torch", torch.__version__]
    if chosen.amp is None:
        computing, engine = accelerated(network, store.n * len(recipe.files), store.image_size, chosen.device)
    # The last bits of features depend on package, version and device, so all features of a bank come from one engine.
    engine += [str(chosen.amp or torch.float32).removeprefix("torch."), chosen.device.type]
    made_by = {"engine": engine, "code": code_of("features", settings)}
    with StopSignal() as stop, replacing_folder(out) as folder:
        begin = time.perf_counter()
        computed = fill(
            folder, recipe, store, computing, known, made_by=made_by, device=chosen.device, workers=chosen.workers,
            autocast=chosen.amp, stopping=lambda: bool(stop),
        )  # fmt: skip
        seconds = time.perf_counter() - begin
        save_backbone(network.backbone, folder / BACKBONE)
    facts: dict[str, Any] = {
        "images": store.n,
        "views": len(recipe.files),
        "bytes an image": recipe.bytes_per_image,
        "images computed": computed,
        "computed by": " ".join(engine),
        "images a second": round(computed / max(seconds, 1e-9), 1),
        "bank": str(out),
    }
    finish("features", facts, ["dicap-stage warmup"])
