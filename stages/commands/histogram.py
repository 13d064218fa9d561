"""`dicap-stage histogram`: look at a Parquet artifact in the terminal."""

from pathlib import Path

import click


@click.command("histogram")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--epoch", type=click.IntRange(0), help="Which epoch of a folder; the last one if not given.")
def command(path: Path, epoch: int | None) -> None:
    """Draw the histogram of a Parquet artifact.

    PATH is a weights or pseudo_labels folder, one epoch's folder in it, or one file:

    \b
      dicap-stage histogram artifacts/train/pseudo_labels     weights of the pseudo-labels
      dicap-stage histogram artifacts/train/weights           share of positives by confidence
    """
    import shutil

    from dicap.report.histogram import lines, open_histogram

    title, bars = open_histogram(path, epoch)
    for line in [title, "", *lines(bars, shutil.get_terminal_size((80, 24)).columns)]:
        click.echo(line)
