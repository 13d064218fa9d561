"""`dicap-stage convert`: the raw data set becomes `data/converted`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stages.common import DATA, load, params_option, project_root
from stages.terminal import finish, say

if TYPE_CHECKING:
    from dicap.data.sources.base import RawSet
    from dicap.settings import Own, Settings


@click.command("convert")
@params_option
@click.option("--workers", envvar="DICAP_WORKERS", type=click.IntRange(0), help="Processes; default: one a core. [DICAP_WORKERS]")
def command(params: Path, workers: int | None) -> None:
    """Index the raw data set and cache its images, resized, as one array."""
    from dicap.data.sources import read_raw

    settings = load(params)
    # Relative to the original project: a queued run's own folder does not hold the raw images.
    root = project_root() / settings.data_root if settings.data_root else None
    convert_raw(read_raw(settings.dataset, root, settings.image_size, own_data(settings)), settings, workers)


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
    )
    counts = ", ".join(f"{count} {split}" for split, count in meta["counts"].items() if count)
    text = f"{folder}: {counts}; {len(meta['classes'])} classes; {settings.image_size} px"
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
