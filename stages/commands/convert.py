"""`dicap-stage convert`: the raw data set becomes `data/converted`."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stages.support.common import DATA, Shard, kept_shards, load, params_option, project_root, say_plan, shard_options
from stages.support.terminal import finish, say

if TYPE_CHECKING:
    from dicap.data.sources.base import RawSet
    from dicap.settings import Own, Settings


@click.command("convert")
@params_option
@click.option("--workers", envvar="DICAP_WORKERS", type=click.IntRange(0), help="Processes; default: one a core. [DICAP_WORKERS]")
@shard_options
@click.option("--fresh", is_flag=True, help="Discard the shards of earlier conversions instead of using them again.")
def command(params: Path, workers: int | None, shard: Shard | None, plan: bool, fresh: bool) -> None:
    """Index the raw data set and cache its images, resized, as one array or in shards of convert.shard_size images."""
    settings = load(params)
    if fresh:
        import shutil

        shutil.rmtree(kept_shards("convert"), ignore_errors=True)
    raw = _raw(settings)
    if plan or shard is not None:
        _shard(raw, settings, workers, shard)
    else:
        convert_raw(raw, settings, workers)


def _shard(raw: "RawSet", settings: "Settings", workers: int | None, shard: Shard | None) -> None:
    """Convert some shards, or with None say which there are."""
    from dicap.data.convert import Plan, convert_shard

    plan = Plan.of(raw, image_size=settings.image_size, store=settings.convert.store, **_shards_of(settings))
    if shard is None:
        say_plan("convert", len(plan.shards), plan.missing)
        return
    chosen = shard.of(len(plan.shards))
    made = [each for each in chosen if convert_shard(plan, each, workers)]
    text = f"convert: shard {shard} of {len(plan.shards)}: {len(made)} made, {len(chosen) - len(made)} were there already"
    finish("convert", {"shard": str(shard), "shards": len(plan.shards), "made": made}, ["dicap-stage convert"], text=text)


def _shards_of(settings: "Settings") -> dict[str, Any]:
    """How a set is divided into shards, where finished ones are, and what stands for the code that makes them."""
    from dicap.provenance.dependencies import code

    digest = hashlib.sha256(json.dumps(code("convert", settings), sort_keys=True).encode()).hexdigest()
    return {"shard_size": settings.convert.shard_size, "kept": kept_shards("convert"), "code": digest}


def _raw(settings: "Settings") -> "RawSet":
    from dicap.data.sources import read_raw

    # Relative to the original project: a queued run's own folder does not hold the raw images.
    root = project_root() / settings.data_root if settings.data_root else None
    return read_raw(settings.dataset, root, settings.image_size, own_data(settings))


def own_data(settings: "Settings") -> "Own":
    """The options of one's own data; a folder is relative to the original project, a list of labels belongs to the run."""
    own = settings.own
    return own.model_copy(update={"unlabeled_root": str(project_root() / own.unlabeled_root) if own.unlabeled_root else None})


def convert_raw(raw: "RawSet", settings: "Settings", workers: int | None) -> None:
    """Convert a listed data set and say what came of it."""
    from dicap.data.convert import convert

    folder = DATA
    meta = convert(
        raw,
        folder,
        image_size=settings.image_size,
        store=settings.convert.store,
        max_rejected=settings.convert.max_rejected,
        workers=workers,
        **_shards_of(settings),
    )
    counts = ", ".join(f"{count} {split}" for split, count in meta["counts"].items() if count)
    text = f"{folder}: {counts}; {len(meta['classes'])} classes; {settings.image_size} px"
    if "shards" in meta:
        text += f"; {len(meta['shards'])} shards"
    if "fidelity" in meta:
        say(f"{folder}: stored as JPEG, {meta['fidelity']['psnr_db']} dB from the array")
    if meta["rejected"]:
        say(f"{folder}: {len(meta['rejected'])} images rejected, listed with reasons in {folder / 'meta.json'}")
        for entry in meta["rejected"][:5]:
            say(f"  {entry['path']}: {entry['reason']}")
    for note in meta["notes"]:
        say(f"{folder}: note: {note}")
    facts = meta["counts"] | {"classes": len(meta["classes"]), "rejected": len(meta["rejected"]), "folder": str(folder)}
    finish("convert", facts, [f"dicap-stage doctor {folder}", "dicap-stage split"], text=text)
