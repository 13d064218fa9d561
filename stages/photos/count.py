"""`dicap-stage count`: how many photographs show each class."""

import os
from pathlib import Path

import click

from dicap.errors import DataError, SettingsError
from stages.support.common import ARTIFACTS, data_folder, device_option, known_features, load, out_option, params_option
from stages.support.terminal import columns, finish, say


@click.command("count")
@click.argument("images", nargs=-1)
@click.option("--model", type=click.Path(path_type=Path), help="Another model than the pipeline's last.")
@out_option("counts.csv", "A .csv file.")
@device_option
@params_option
def command(images: tuple[str, ...], model: Path | None, out: Path, device: str, params: Path) -> None:
    """Count how many of IMAGES show each class, with a 95 % interval; without IMAGES, the project's own unlabelled ones.

    IMAGES as for `predict`. The sum of the model's probabilities is corrected by its errors on held-out labelled images. The
    interval is valid if those were drawn at random from the same photographs; images chosen by `suggest` are not, except with
    --by random. A warning appears if IMAGES look out of distribution; the column by_shift then has another estimate.
    """
    from dicap.files.written import check_own, replacing_own
    from dicap.photos.count import count
    from dicap.photos.folder import photographs, stored

    if out.suffix.lower() != ".csv":
        raise SettingsError(f"--out: found {str(out)!r}, expected a file that ends in .csv")
    check_own(out)
    if images:
        named = photographs(images[0] if len(images) == 1 else images)
        photos = list({os.path.abspath(str(one.source)): one for one in named}.values())  # a file that is named twice counts once
        number = len(photos)
    else:
        from dicap.data.store import Store
        from stages.photos.photographs import unlabelled

        settings = load(params)
        store = Store.open(data_folder(settings))
        rows = unlabelled(settings, store)
        if not len(rows):
            raise DataError(f"{store.folder}: every image is labelled; name a folder to count in")
        photos, number = stored(store, rows), len(rows)
    table, outcome, warnings = count(model or ARTIFACTS / "finetune", photos, number, device=device, known=known_features())
    with replacing_own(out) as temporary:
        table.to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    shown = [(row["class"], f"{row['count']:,.0f}", f"{row['low']:,.0f} to {row['high']:,.0f}") for _, row in table.iterrows()]
    for line in columns([("class", "count", "95 % interval"), *shown], right={1, 2}):
        say(line)
    for line in warnings:
        click.echo(f"Warning: {line}", err=True)
    facts = {"images": outcome.images, "classes": len(table), "counts": str(out)}
    facts["assumes"] = "labelled photographs drawn at random from the same ones"
    if outcome.unreadable:
        facts["unreadable"] = len(outcome.unreadable)
    finish("count", facts)
