"""`dicap-stage convert`: the raw data set becomes `data/converted`."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dicap.files.atomic import replacing
from stages.support.common import DATA, PIXELS, known_results, load, params_option, project_root
from stages.support.terminal import finish, say

if TYPE_CHECKING:
    from dicap.data.sources.base import RawSet
    from dicap.settings import Own, Settings


@click.command("convert")
@params_option
@click.option("--workers", envvar="DICAP_WORKERS", type=click.IntRange(0), help="Processes; default: one a core. [DICAP_WORKERS]")
def command(params: Path, workers: int | None) -> None:
    """Index the raw data set and write its images, resized, as one array.

    An image whose file did not change is not decoded again.
    """
    from dicap.data.sources import read_raw

    settings = load(params)
    # Relative to the original project: a queued run's own folder does not hold the raw images.
    root = project_root() / settings.data_root if settings.data_root else None
    convert_raw(read_raw(settings.dataset, root, own_data(settings)), settings, workers)


def own_data(settings: "Settings") -> "Own":
    """The options of one's own data; a folder is relative to the original project, a list of labels belongs to the run."""
    own = settings.own
    return own.model_copy(update={"unlabeled_root": str(project_root() / own.unlabeled_root) if own.unlabeled_root else None})


def convert_raw(raw: "RawSet", settings: "Settings", workers: int | None) -> None:
    """Convert a listed data set and say what came of it; what nobody used for long goes from the store of results."""
    from dicap.data.convert import convert
    from dicap.data.format import ARRAY
    from dicap.data.store import Store
    from dicap.files.content_store import remove_unused
    from dicap.provenance.dependencies import code

    folder = DATA
    digest = hashlib.sha256(json.dumps(code("convert", settings), sort_keys=True).encode()).hexdigest()
    meta = convert(
        raw,
        folder,
        image_size=settings.image_size,
        max_rejected=settings.convert.max_rejected,
        workers=workers,
        known=known_results("convert"),
        code=digest,
    )
    remove_unused(known_results("convert").parent)
    identity = [meta["checksums"][ARRAY], *([Store.open(folder).test_checksum] if settings.features.views else [])]
    with replacing(PIXELS) as temporary:
        temporary.write_text("".join(f"{checksum}\n" for checksum in identity), encoding="utf-8")
    if meta["rejected"]:
        say(f"{folder}: {len(meta['rejected'])} images rejected, listed with reasons in {folder / 'meta.json'}")
        for entry in meta["rejected"][:5]:
            say(f"  {entry['path']}: {entry['reason']}")
    for note in meta["notes"]:
        say(f"{folder}: note: {note}")
    facts = meta["counts"] | {"classes": len(meta["classes"]), "rejected": len(meta["rejected"]), "folder": str(folder)}
    finish("convert", facts, [f"dicap-stage doctor {folder}", "dicap-stage split"])
