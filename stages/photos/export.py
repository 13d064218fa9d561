"""`dicap-stage export`: a model for other programs."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stages.support.common import out_option, target_options
from stages.support.terminal import finish, say_promises

if TYPE_CHECKING:
    from dicap.evaluation.targets import Targets


@click.command("export")
@click.argument("model", type=click.Path(path_type=Path))
@out_option("model.onnx", "A .onnx file.")
@target_options
def command(model: Path, out: Path, targets: "Targets") -> None:
    """Write MODEL as ONNX, checked against the original.

    Preprocessing, classes, thresholds and correctness curve stand in the file's metadata and in <out>.json beside it.
    """
    from dicap.photos.export import export
    from dicap.photos.predict import open_model

    saved, promises = targets.applied(open_model(model, "cpu")[0])
    apart = export(saved, out)
    facts = {"model": str(out), "description": f"{out}.json", "largest difference of a score": f"{apart:.1e}"}
    say_promises(promises, facts)
    example = Path("docs/onnx_example.py")  # of this repository
    finish("export", facts, [f"python {example} {out} PHOTO.jpg"] if example.is_file() else [])
