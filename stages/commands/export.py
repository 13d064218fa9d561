"""`dicap-stage export`: a model for other programs."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stages.support.common import target_options
from stages.support.terminal import finish, say_promises

if TYPE_CHECKING:
    from dicap.evaluation.targets import Targets


@click.command("export")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--format", "kind", type=click.Choice(["onnx", "pt2"]), help="What to write; default: what --out ends in, else onnx."
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Where to; default: model.onnx or model.pt2.")
@target_options
def command(model: Path, kind: str | None, out: Path | None, targets: "Targets") -> None:
    """Write MODEL as ONNX or as a torch.export program, checked against the original.

    Preprocessing, classes, thresholds and correctness curve stand in the file's metadata and in <out>.json beside it.
    """
    from dicap.use.export import export
    from dicap.use.predict import open_model

    kind = kind or ("pt2" if out is not None and out.suffix.lower() == ".pt2" else "onnx")
    saved, promises = targets.applied(open_model(model, "cpu")[0])
    out = out or Path(f"model.{kind}")
    apart = export(saved, out, kind)
    facts = {"model": str(out), "description": f"{out}.json", "largest difference of a score": f"{apart:.1e}"}
    say_promises(promises, facts)
    example = Path("docs/onnx_example.py")  # of this repository
    finish("export", facts, [f"python {example} {out} PHOTO.jpg"] if kind == "onnx" and example.is_file() else [])
