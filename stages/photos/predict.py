"""`dicap-stage predict`: images through a trained model."""

from pathlib import Path

import click

from stages.support.common import device_option, gallery_option, known_features, out_option
from stages.support.terminal import finish, opening


@click.command("predict")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("images", nargs=-1, required=True)
@out_option("predictions.parquet", "A .parquet or .csv file.")
@click.option(
    "--per-image", is_flag=True, help="A row for each image (labels; unsure; absent) instead of one for each image and class."
)
@device_option
@gallery_option
def command(model: Path, images: tuple[str, ...], out: Path, per_image: bool, device: str, gallery: Path | None) -> None:
    """Predict the classes of IMAGES: files, and folders with all folders in them.

    MODEL is a model.safetensors or the folder that holds one. For each image and class: the probability, the decision
    (yes, no, unsure) by the trained thresholds, and the measured chance that the decision is right, with its 95 % interval.
    """
    if gallery is not None and per_image:
        raise click.UsageError("--gallery shows a row for each image and class; leave out --per-image")
    from dicap.metrics.warnings import of_chance
    from dicap.photos.predict import open_model, predict_to_file

    saved = open_model(model, device)[0]
    named = images[0] if len(images) == 1 else images
    outcome = predict_to_file(saved, named, out, device=device, per_image=per_image, known=known_features())
    facts = {"images": outcome.images, "classes": len(saved.classes), "predictions": str(out), "decisions": saved.evidence.note}
    if outcome.unreadable:
        facts["unreadable"] = len(outcome.unreadable)
        facts["listed in"] = str(out.with_name(f"{out.stem}.unreadable.csv"))
    following = []
    if gallery is not None:
        from dicap.evaluation.answers import Answers
        from dicap.photos.folder import photographs
        from dicap.photos.pages.gallery import write_gallery

        files = {one.name: one.source for one in photographs(named) if isinstance(one.source, Path)}
        page = write_gallery(out, saved.classes, Answers.of(saved.evidence), gallery, files)
        facts["gallery"], following = str(page), [opening(page)]
    for line in of_chance(saved.evidence.measured):
        click.echo(f"Warning: {line}", err=True)
    finish("predict", facts, following)
