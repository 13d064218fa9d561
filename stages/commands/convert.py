"""`dicap-stage convert`: the raw data set becomes `data/converted`."""

from pathlib import Path

import click

from dicap.files.atomic import replacing
from stages.support.common import DATA, PIXELS, known_results, load, params_option
from stages.support.terminal import finish, say


@click.command("convert")
@params_option
@click.option("--workers", envvar="DICAP_WORKERS", type=click.IntRange(0), help="Processes; default: one a core. [DICAP_WORKERS]")
def command(params: Path, workers: int | None) -> None:
    """Index the raw data set and write its images, resized, as one array.

    Only new and changed image files are decoded.
    """
    from dicap.data.convert import convert
    from dicap.data.format import ARRAY
    from dicap.data.sources import read_raw
    from dicap.data.store import Store
    from dicap.files.content_store import remove_unused
    from dicap.provenance import code_of

    settings = load(params)
    # Relative paths start at the current folder, as in DVC: a queued run has a folder of its own.
    lists = Path(settings.convert.lists) if settings.convert.lists else None
    raw = read_raw(settings.dataset, Path(settings.data_root).resolve(), settings.own, lists)
    folder = DATA
    meta = convert(
        raw,
        folder,
        image_size=settings.image_size,
        max_rejected=settings.convert.max_rejected,
        workers=workers,
        known=known_results("convert"),
        code=code_of("convert", settings),
    )
    remove_unused(known_results("convert").parent)
    identity = [meta["checksums"][ARRAY], Store.open(folder).test_checksum]
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
