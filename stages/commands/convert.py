"""`dicap-stage convert`: converts the raw data set into `data/converted`."""

from pathlib import Path

import click

from dicap.files.atomic import replacing
from stages.support.common import DATA, PIXELS, known_results, load, params_option, raw_set
from stages.support.terminal import finish, say


@click.command("convert")
@params_option
@click.option(
    "--workers", envvar="DICAP_WORKERS", type=click.IntRange(0), help="Processes; default: one per core. [DICAP_WORKERS]"
)
def command(params: Path, workers: int | None) -> None:
    """Index the raw data set and write its images, resized, as one array.

    Only new and changed image files are decoded.
    """
    from dicap.data.convert import convert
    from dicap.data.format import ARRAY
    from dicap.data.store import Store
    from dicap.files.content_store import remove_unused
    from dicap.provenance import code_of

    settings = load(params)
    meta = convert(
        raw_set(settings),
        DATA,
        image_size=settings.image_size,
        max_rejected=settings.convert.max_rejected,
        workers=workers,
        known=known_results("convert"),
        code=code_of("convert", settings),
    )
    remove_unused(known_results("convert").parent)
    identity = [meta["checksums"][ARRAY], Store.open(DATA).test_checksum]
    with replacing(PIXELS) as temporary:
        temporary.write_text("".join(f"{checksum}\n" for checksum in identity), encoding="utf-8")
    if meta["rejected"]:
        say(f"{DATA}: {len(meta['rejected'])} images rejected, listed with reasons in {DATA / 'meta.json'}")
        for entry in meta["rejected"][:5]:
            say(f"  {entry['path']}: {entry['reason']}")
    for note in meta["notes"]:
        say(f"{DATA}: note: {note}")
    facts = meta["counts"] | {"classes": len(meta["classes"]), "rejected": len(meta["rejected"]), "folder": str(DATA)}
    finish("convert", facts, [f"dicap-stage doctor {DATA}", "dicap-stage split"])
