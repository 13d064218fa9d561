"""`dicap-stage methods`: what can be compared."""

import click

from dicap.catalogue import METHODS


@click.command("methods")
def command() -> None:
    """List the methods that can be compared."""
    columns = ("method", "title", "head", "loss", "pseudo-labels", "source", "confidence")
    rows = [
        (name, facts.title, facts.head, facts.loss, facts.rule, facts.source, facts.confidence) for name, facts in METHODS.items()
    ]
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, *rows]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
