"""`dicap-stage histogram`: draws a Parquet artifact in the terminal."""

import shutil
from pathlib import Path

import click

from stages.support.terminal import finish


@click.command("histogram")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--epoch", type=click.IntRange(1), help="Number of the epoch, from 1; default: the last.")
def command(folder: Path, epoch: int | None) -> None:
    """Draw the histogram of a Parquet artifact.

    FOLDER is a weights or pseudo_labels folder:

    \b
      dicap-stage histogram artifacts/train/pseudo_labels     weights of the pseudo-labels
      dicap-stage histogram artifacts/train/weights           share of positives by confidence
    """
    from dicap.report.histogram import lines, open_histogram

    title, bars = open_histogram(folder, epoch)
    facts = {"what": title, "bars": [{"name": name, "length": length, "numbers": words} for name, length, words in bars]}
    finish("histogram", facts, lines=[title, "", *lines(bars, shutil.get_terminal_size((80, 24)).columns)])
