"""How commands speak: what came of it at the end, or one JSON object for scripts, or nothing."""

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import click


def finish(title: str, facts: dict[str, Any], next_commands: Sequence[str] = (), *, lines: Sequence[str] | None = None) -> None:
    """Say what a command did, where things are, and outside a pipeline what to type next.

    As text, as JSON or not at all, as the user asked `dicap-stage` for (`--quiet`, `--json`).

    Args:
        facts: in the order of reading; values of JSON's types.
        lines: of text, in place of the facts.
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
    """What to do next with a page that was written: it names the file so that it can be opened from anywhere."""
    return f"open {page.absolute()} in a browser"


def say(line: str) -> None:
    """A line on stdout that `--quiet` and `--json` leave out."""
    options = spoken()
    if not (options["json"] or options["quiet"]):
        click.echo(line)


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Lines of a table without borders; `right`: columns of numbers."""
    from tabulate import tabulate

    cut = [[cell if len(cell) <= 60 else f"{cell[:57]}..." for cell in row] for row in rows]
    align = ["right" if c in right else "left" for c in range(len(rows[0]))]
    return tabulate(cut, tablefmt="plain", disable_numparse=True, colalign=align).splitlines()


def spoken() -> dict[str, bool]:
    """What the user asked for: {"quiet", "json"}."""
    context = click.get_current_context(silent=True)
    chosen = (context.find_root().obj if context is not None else None) or {}
    return {"quiet": bool(chosen.get("quiet")), "json": bool(chosen.get("json"))}


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
