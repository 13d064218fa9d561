"""`dicap-stage methods`: what can be compared."""

from itertools import zip_longest
from textwrap import wrap

import click

from dicap.settings.methods import METHODS

# Columns and their widths: with two blanks between them 100 in all, which fits most terminals. Longer cells go on below.
WIDTHS = {"method": 6, "title": 6, "head": 10, "loss": 20, "pseudo-labels": 30, "source": 18}


@click.command("methods")
def command() -> None:
    """List the methods that can be compared."""
    rows = [(name, facts.title, facts.head, facts.loss, facts.rule, facts.source) for name, facts in METHODS.items()]
    for row in [tuple(WIDTHS), *rows]:
        cells = [wrap(cell, width, break_on_hyphens=False) for cell, width in zip(row, WIDTHS.values(), strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            line = "  ".join(part.ljust(width) for part, width in zip(parts, WIDTHS.values(), strict=True))
            click.echo(line.rstrip())
