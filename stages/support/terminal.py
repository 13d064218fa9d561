"""The output of commands: a summary at the end, or one JSON object for scripts, or nothing."""

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import click


def finish(title: str, facts: dict[str, Any], next_commands: Sequence[str] = (), *, lines: Sequence[str] | None = None) -> None:
    """Print a command's results and, outside a pipeline, the next commands.

    The output is text; with `--json` it is JSON, with `--quiet` there is none.

    Args:
        facts: {name: value} in the order of reading, with JSON values.
        lines: lines of text that replace the facts.
    """
    options = spoken()
    if options["json"]:
        click.echo(json.dumps({"command": title} | facts, ensure_ascii=False))
        return
    if options["quiet"]:
        return
    if lines is not None:
        click.echo("".join(f"{line}\n" for line in lines), nl=False)
        return
    click.secho(title, bold=True)
    label = max((len(key) for key in facts), default=0)
    for key, value in facts.items():
        click.echo(f"  {key:<{label}}  {_shown(value)}")
    if next_commands and "DVC_STAGE" not in os.environ:
        click.echo("\n".join(["Next:", *(f"  {command}" for command in next_commands)]))


def opening(page: Path) -> str:
    """The next step after writing a page, with the page's absolute path."""
    return f"open {page.absolute()} in a browser"


def say(line: str) -> None:
    """Print a line on stdout, except with `--quiet` or `--json`."""
    options = spoken()
    if not (options["json"] or options["quiet"]):
        click.echo(line)


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Lines of a table without borders; `right`: indices of right-aligned columns."""
    from tabulate import tabulate

    cut = [[cell if len(cell) <= 60 else f"{cell[:57]}..." for cell in row] for row in rows]
    align = ["right" if c in right else "left" for c in range(len(rows[0]))]
    return tabulate(cut, tablefmt="plain", disable_numparse=True, colalign=align).splitlines()


def spoken() -> dict[str, bool]:
    """The options of `dicap-stage`: {"quiet": bool, "json": bool}."""
    context = click.get_current_context(silent=True)
    chosen = (context.find_root().obj if context is not None else None) or {}
    return {"quiet": bool(chosen.get("quiet")), "json": bool(chosen.get("json"))}


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
