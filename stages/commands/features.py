"""`dicap-stage features`: what a frozen backbone sees in every image, computed once."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stages.support.common import (
    ARTIFACTS,
    Shard,
    data_folder,
    engine_option,
    kept_shards,
    load,
    machine_options,
    params_option,
    placed,
    project_root,
    say_plan,
    shard_options,
)
from stages.support.terminal import finish

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from dicap.data.store import Store
    from dicap.features.recipe import Recipe
    from dicap.network import Network
    from dicap.settings import Settings

BANK = ARTIFACTS / "features"


@click.command("features")
@params_option
@engine_option
@machine_options
@shard_options
def command(params: Path, engine: str, fresh: bool, shard: Shard | None, plan: bool, **runtime: Any) -> None:
    """Compute the features of all images, where a stage is to train the head alone.

    They are those of the plain image, of its mirror image and of features.views strong views, from the backbone as it comes:
    the same for every method, ratio and seed. Where all stages train the whole network, nothing is computed. Of a converted set
    in shards, the features of a shard are computed once, whatever is added to others.
    """
    from dicap.features.folder import fill_empty, publish

    settings = placed(load(params))
    if settings.needs_features:
        _compute(settings, engine, fresh, shard, plan, runtime)
        return
    if plan or shard is not None:
        say_plan("features: none needed", 0, [])
        return
    scratch = BANK.with_name(f".{BANK.name}.new")
    fill_empty(scratch)
    publish(scratch, BANK)
    text = f"{BANK}: empty, since no stage trains the head alone (warmup.trainable, train.trainable)"
    finish("features", {"bank": str(BANK), "features": "none needed"}, ["dicap-stage warmup"], text=text)


def _compute(settings: "Settings", engine: str, fresh: bool, shard: Shard | None, plan: bool, runtime: dict[str, Any]) -> None:
    import time

    import numpy as np

    from dicap.data.store import Store
    from dicap.features.engine import scoring_engine
    from dicap.features.recipe import Recipe, pretrained_network
    from dicap.machine.runtime import Runtime
    from dicap.provenance.dependencies import code
    from dicap.training.checkpoint.state import StopSignal

    chosen = Runtime.choose(**runtime)
    store = Store.open(data_folder(settings))
    if store.image_size != settings.image_size:
        from dicap.errors import SettingsError

        raise SettingsError(
            f"params.yaml: image_size: found {settings.image_size}, but {store.folder} was converted at {store.image_size}; "
            "run `dvc repro` (or `dicap-stage convert`)"
        )
    shards = range(store.shards) if shard is None else shard.of(store.shards)
    network = pretrained_network(settings).to(chosen.device)
    recipe = Recipe.of(settings, store, network)
    probe = store.read(np.linspace(0, store.n - 1, min(store.n, 4)).astype(np.int64))
    fast, computed_by = scoring_engine(network, chosen, engine, image_size=settings.image_size, probe=probe)
    if computed_by.note:
        click.echo(computed_by.note, err=True)
    record = computed_by.to_dict()
    # Features of two engines differ in their last bits: a bank, or a shard of one, is begun and ended by one.
    by = {key: record[key] for key in ("name", "version", "precision")}
    made_by = {"engine": by, "code": code("features", settings)}
    begin = time.perf_counter()
    with StopSignal() as stop:
        options = {
            "engine": record, "device": chosen.device, "workers": chosen.workers, "data_on": chosen.data_on,
            "autocast": chosen.amp, "stopping": lambda: bool(stop),
        }  # fmt: skip
        if plan or store.shards:
            work = _Shards(recipe, store, made_by, fresh)
            if plan:
                say_plan("features", store.shards, work.missing)
                return
            taken_over = work.fill(fast, options, shards)
            if shard is None:
                work.publish(record, network.backbone)
        else:
            taken_over = _whole(recipe, store, network.backbone, fast, options, made_by, fresh)
    seconds = time.perf_counter() - begin
    images = store.n if shard is None else sum(store.meta["shards"][each] for each in shards)
    computed = images * sum(view.view.parts for view in recipe.files) - taken_over
    facts: dict[str, Any] = {
        "images": images,
        "views": len(recipe.files),
        "bytes an image": recipe.bytes_per_image,
        "engine": f"{computed_by.name} {computed_by.version}, {computed_by.precision}",
        "difference from torch": record["difference"],
    }
    if taken_over:
        facts["taken over"] = taken_over
    place = str(BANK) if shard is None else f"shard {shard} of {store.shards}"
    facts |= {"images a second": round(computed / max(seconds, 1e-9), 1), "bank": place}
    text = f"{place}: {len(recipe.files)} views of {images} images, {recipe.bytes_per_image} bytes each, by {computed_by.name}"
    finish("features", facts, ["dicap-stage warmup" if shard is None else "dicap-stage features"], text=text)


def _whole(
    recipe: "Recipe",
    store: "Store",
    backbone: "nn.Module",
    network: "Network",
    options: dict[str, Any],
    made_by: dict[str, Any],
    fresh: bool,
) -> int:
    """Fill and publish the bank of a set without shards; how many images an earlier run had computed."""
    from dicap.features.compute import fill
    from dicap.features.folder import BACKBONE, publish
    from dicap.network.stored import save_backbone
    from dicap.training.checkpoint.state import RunState, fingerprint

    with RunState(project_root(), "features", fingerprint({"recipe": recipe.fingerprint, **made_by})) as state:
        if fresh:
            state.clear()
        taken_over = fill(state.products, recipe, store, network, **options)
        save_backbone(backbone, state.products / BACKBONE)
        publish(state.products, BANK)
        state.finish()
    return taken_over


class _Shards:
    """The features of a set in shards: a bank for each shard, kept beside the project, and the bank that is put together."""

    def __init__(self, recipe: "Recipe", store: "Store", made_by: dict[str, Any], fresh: bool) -> None:
        from dicap.data.kept import Kept
        from dicap.data.store import Store
        from dicap.features.compute import shard_key

        self._recipe, self._store, self._made_by, self._fresh = recipe, store, made_by, fresh
        self._recipes = [recipe.of_shard(Store.open(store.folder, shard)) for shard in range(store.shards)]
        self._keys = [shard_key(part, made_by) for part in self._recipes]
        self._kept = Kept(kept_shards("features"))

    @property
    def missing(self) -> list[int]:
        """Shards whose features nobody has computed."""
        return [shard for shard, key in enumerate(self._keys) if not self._kept.holds(key)]

    def fill(self, network: "Network", options: dict[str, Any], shards: "Iterable[int]") -> int:
        """Compute the features of some shards where they are not kept; how many images need no work."""
        from dicap.data.store import Store
        from dicap.features.compute import fill
        from dicap.training.checkpoint.state import RunState, fingerprint

        taken_over = 0
        for shard in shards:
            recipe, key = self._recipes[shard], self._keys[shard]
            with RunState(project_root(), "features", fingerprint({"recipe": recipe.fingerprint, **self._made_by})) as state:
                if self._fresh:
                    state.clear()
                if not self._fresh and self._kept.whole(key):
                    taken_over += recipe.n * sum(view.view.parts for view in recipe.files)
                else:
                    images = Store.open(self._store.folder, shard)  # for now only: on a device they take memory
                    taken_over += fill(state.products, recipe, images, network, **options)
                    self._kept.take(key, state.products)
                state.finish()
        return taken_over

    def publish(self, record: dict[str, Any], backbone: "nn.Module") -> None:
        """Put the bank together from its shards, all of them whole."""
        from dicap.features.compute import gather
        from dicap.features.folder import BACKBONE, publish
        from dicap.network.stored import save_backbone

        scratch = BANK.with_name(f".{BANK.name}.new")
        gather(scratch, self._recipe, self._kept, self._keys, self._store.meta["shards"], engine=record)
        save_backbone(backbone, scratch / BACKBONE)
        publish(scratch, BANK)
        self._kept.clean(set(self._keys))
