"""How commands speak: a summary box at the end, or one JSON object for scripts, or nothing."""

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click


def finish(title: str, facts: dict[str, Any], next_commands: Sequence[str] = (), *, text: str | None = None) -> None:
    """Say what a command did, where things are, and what to type next.

    Plain, coloured or as JSON, as the user asked `dicap-stage` for (`--quiet`, `--json`).

    Args:
        facts: in the order of reading; values of JSON's types.
        text: what stands in for the box where the output is no terminal; None: the box everywhere.
    """
    options = spoken()
    if options["json"]:
        click.echo(json.dumps({"command": title} | facts, ensure_ascii=False))
        return
    if options["quiet"]:
        return
    terminal = sys.stdout.isatty()
    if text is not None and not terminal:
        click.echo(text)
        return
    click.echo("\n".join(box(title, facts, next_commands, width=shutil.get_terminal_size((100, 24)).columns, colour=terminal)))


def opening(page: Path) -> str:
    """What to do next with a page that was written: it names the file so that it can be opened from anywhere."""
    return f"open {page.absolute()} in a browser"


def say(line: str) -> None:
    """A line on stdout that `--quiet` and `--json` leave out."""
    options = spoken()
    if not (options["json"] or options["quiet"]):
        click.echo(line)


def spoken() -> dict[str, bool]:
    """What the user asked for: {"quiet", "json"}."""
    context = click.get_current_context(silent=True)
    chosen = (context.find_root().obj if context is not None else None) or {}
    return {"quiet": bool(chosen.get("quiet")), "json": bool(chosen.get("json"))}


def box(title: str, facts: dict[str, Any], next_commands: Sequence[str], *, width: int, colour: bool) -> list[str]:
    """The lines of a box of at most `width` columns; commands to copy stand below it, whole."""
    label = max((len(key) for key in facts), default=0)
    rows = [f"{key:<{label}}  {_shown(value)}" for key, value in facts.items()]
    inner = min(max([len(row) for row in rows] + [len(title) + 4]), max(20, width - 4))
    ascii_only = not (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")
    across, down, corners = ("-", "|", "++++") if ascii_only else ("─", "│", "╭╮╰╯")
    bold = (lambda text: click.style(text, bold=True, fg="green")) if colour else (lambda text: text)
    lines = [f"{corners[0]}{across} {bold(title)} {across * (inner - len(title) - 1)}{corners[1]}"]
    indent = " " * min(label + 2, inner // 2)
    for row in rows:
        pieces = textwrap.wrap(row, inner, subsequent_indent=indent, drop_whitespace=True, break_on_hyphens=False) or [""]
        lines += [f"{down} {piece:<{inner}} {down}" for piece in pieces]
    lines.append(f"{corners[2]}{across * (inner + 2)}{corners[3]}")
    if next_commands:
        lines += ["Next:", *(f"  {command}" for command in next_commands)]
    return lines


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
