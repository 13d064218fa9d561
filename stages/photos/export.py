"""`dicap-stage export`: a model for other programs."""

from pathlib import Path

import click

from stages.support.common import out_option
from stages.support.terminal import finish


@click.command("export")
@click.argument("model", type=click.Path(path_type=Path))
@out_option("model.onnx", "A .onnx file.")
def command(model: Path, out: Path) -> None:
    """Write MODEL as ONNX, checked against the original.

    The file's metadata and <out>.json beside it contain preprocessing, classes, thresholds and correctness curve.
    """
    from dicap.photos.export import export
    from dicap.photos.predict import open_model

    apart = export(open_model(model, "cpu")[0], out)
    facts = {"model": str(out), "description": f"{out}.json", "largest difference of a score": f"{apart:.1e}"}
    finish("export", facts)
