"""`dicap-stage histogram`: look at a Parquet artifact in the terminal, or as a figure."""

from pathlib import Path

import click


@click.command("histogram")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Also draw it: a .svg, .png or .pdf file.")
@click.option("--epoch", type=click.IntRange(0), help="Which epoch of a folder; the last one if not given.")
def command(path: Path, out: Path | None, epoch: int | None) -> None:
    """Draw the histogram of a Parquet artifact.

    PATH is a weights, pseudo_labels or thresholds folder, one epoch's folder in it, or one file:

    \b
      dicap-stage histogram artifacts/train/pseudo_labels     weights of the pseudo-labels
      dicap-stage histogram artifacts/train/weights           share of positives by confidence
      dicap-stage histogram artifacts/train/thresholds        uncertain band of every class
    """
    import shutil
    import sys

    from dicap.files.written import check_own
    from dicap.report.histogram import lines, open_histogram
    from dicap.report.style import check_ending, house_style, save

    if out is not None:
        check_ending(out)
        check_own(out)
    found = open_histogram(path, epoch)
    ascii_only = not (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")
    for line in [found.title, "", *lines(found.bars, shutil.get_terminal_size((80, 24)).columns, ascii_only)]:
        click.echo(line.encode("ascii", "replace").decode("ascii") if ascii_only else line)
    if out is not None:
        with house_style():
            save(found.figure(), out)
        click.echo(f"\nDrawn: {out}")
