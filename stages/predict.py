"""`dicap-stage predict`: a folder of images through a trained model."""

from pathlib import Path

import click

from stages.common import engine_option
from stages.terminal import finish


@click.command("predict")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("predictions.parquet"),
    show_default=True,
    help="A .parquet, .csv or .json file.",
)
@click.option("--batch-size", type=click.IntRange(1), help="Images a step; chosen by itself if not given.")
@click.option("--device", envvar="DICAP_DEVICE", default="auto", show_default=True, help="auto, cpu, cuda. [DICAP_DEVICE]")
@engine_option
@click.option("--workers", envvar="DICAP_WORKERS", type=click.IntRange(0), help="Threads that read images. [DICAP_WORKERS]")
@click.option("--gallery", type=click.Path(path_type=Path, file_okay=False), help="Also a page of thumbnails, in this folder.")
@click.option("--fresh", is_flag=True, help="Start anew instead of going on behind a killed run.")
def command(
    model: Path,
    folder: Path,
    out: Path,
    batch_size: int | None,
    device: str,
    engine: str,
    workers: int | None,
    gallery: Path | None,
    fresh: bool,
) -> None:
    """Predict every image below FOLDER.

    MODEL is a model.safetensors or the folder that holds one. For each image and class: the probability, the decision
    (yes, no, unsure) by the trained thresholds, and the measured chance that the decision is right.
    """
    from dicap.use.predict import open_model, predict_to_file

    saved, _ = open_model(model, device)
    options = {"batch_size": batch_size, "device": device, "engine": engine, "workers": workers, "fresh": fresh}
    outcome = predict_to_file(saved, folder, out, **options)
    if outcome.note:
        click.echo(outcome.note, err=True)
    facts = {"images": outcome.images, "classes": len(saved.classes), "predictions": str(out), "decisions": saved.decisions.note}
    if outcome.resumed:
        facts["taken over"] = outcome.resumed
    if outcome.unreadable:
        facts["unreadable"] = len(outcome.unreadable)
        facts["listed in"] = str(out.with_name(f"{out.stem}.unreadable.csv"))
    if gallery is not None:
        from dicap.use.gallery import write_gallery

        facts["gallery"] = str(write_gallery(out, folder, saved.classes, saved.decisions, gallery, workers))
    finish("predict", facts, [f"python -c \"import pandas as pd; print(pd.read_{out.suffix[1:]}('{out}'))\""])
