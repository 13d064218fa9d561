"""`dicap-stage features`: what a frozen backbone sees in every image, computed once."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stages.common import ARTIFACTS, data_folder, engine_option, load, machine_options, params_option, project_root
from stages.terminal import finish

if TYPE_CHECKING:
    from dicap.settings import Settings

BANK = ARTIFACTS / "features"


@click.command("features")
@params_option
@engine_option
@machine_options
def command(params: Path, engine: str, fresh: bool, **runtime: Any) -> None:
    """Compute the features of all images, where a stage is to train the head alone.

    They are those of the plain image, of its mirror image and of features.views strong views, from the backbone as it comes:
    the same for every method, ratio and seed. Where all stages train the whole network, nothing is computed.
    """
    from dicap.features.compute import fill_empty, publish
    from dicap.features.recipe import needs_features

    settings = load(params)
    if needs_features(settings):
        _compute(settings, engine, fresh, runtime)
        return
    scratch = BANK.with_name(f".{BANK.name}.new")
    fill_empty(scratch)
    publish(scratch, BANK)
    text = f"{BANK}: empty, since no stage trains the head alone (warmup.trainable, train.trainable)"
    finish("features", {"bank": str(BANK), "features": "none needed"}, ["dicap-stage warmup"], text=text)


def _compute(settings: "Settings", engine: str, fresh: bool, runtime: dict[str, Any]) -> None:
    import time

    import numpy as np

    from dicap.data.store import Store
    from dicap.features.compute import fill, publish
    from dicap.features.engine import scoring_engine
    from dicap.features.recipe import Recipe, pretrained_network
    from dicap.provenance import code
    from dicap.runtime import Runtime
    from dicap.training.state import RunState, StopSignal, fingerprint

    chosen = Runtime.choose(**runtime)
    store = Store.open(data_folder(settings))
    if store.image_size != settings.image_size:
        from dicap.errors import SettingsError

        raise SettingsError(
            f"params.yaml: image_size: found {settings.image_size}, but {store.folder} was converted at {store.image_size}; "
            "run `dvc repro` (or `dicap-stage convert`)"
        )
    network = pretrained_network(settings).to(chosen.device)
    recipe = Recipe.of(settings, store, network)
    probe = store.read(np.linspace(0, store.n - 1, min(store.n, 4)).astype(np.int64))
    fast, computed_by = scoring_engine(network, chosen, engine, image_size=settings.image_size, probe=probe)
    if computed_by.note:
        click.echo(computed_by.note, err=True)
    record = computed_by.to_dict()
    # Features of two engines differ in their last bits: a bank is begun and ended by one.
    by = {key: record[key] for key in ("name", "version", "precision")}
    identity = fingerprint({"recipe": recipe.fingerprint, "engine": by, "code": code("features", settings)})
    with RunState(project_root(), "features", identity) as state:
        if fresh:
            state.clear()
        begin = time.perf_counter()
        with StopSignal() as stop:
            taken_over = fill(
                state.products, recipe, store, fast, engine=record, device=chosen.device, workers=chosen.workers,
                data_on=chosen.data_on, autocast=chosen.amp, stopping=lambda: bool(stop),  # type: ignore[arg-type]
            )  # fmt: skip
            seconds = time.perf_counter() - begin
            publish(state.products, BANK)
            state.finish()
    computed = store.n * sum(view.view.parts for view in recipe.files) - taken_over
    facts: dict[str, Any] = {
        "images": store.n,
        "views": len(recipe.files),
        "bytes an image": recipe.bytes_per_image,
        "engine": f"{computed_by.name} {computed_by.version}, {computed_by.precision}",
        "difference from torch": record["difference"],
    }
    if taken_over:
        facts["taken over"] = taken_over
    facts |= {"images a second": round(computed / max(seconds, 1e-9), 1), "bank": str(BANK)}
    text = f"{BANK}: {len(recipe.files)} views of {store.n} images, {recipe.bytes_per_image} bytes each, by {computed_by.name}"
    finish("features", facts, ["dicap-stage warmup"], text=text)
