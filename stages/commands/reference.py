"""`dicap-stage reference`: docs/reference.md and the keys of params.yaml, made from the settings and the commands themselves."""

from pathlib import Path

import click

PAGE = Path("docs/reference.md")


@click.command("reference")
@click.option("--write", is_flag=True, help="Bring docs/reference.md and params.yaml up to date.")
@click.option(
    "--params",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    default=Path("params.yaml"),
    show_default=True,
    help="The experiment's settings.",
)
def command(write: bool, params: Path) -> None:
    """Print the reference of all settings and commands as Markdown; it is kept in docs/reference.md.

    DVC changes only what it finds in params.yaml (`-S train.epochs=5`), so every setting has a line there, mostly empty.
    """
    if not write:
        click.echo(reference(), nl=False)
        return
    page = params.parent / PAGE
    if page.exists() and "Made by `dicap-stage reference" not in page.read_text(encoding="utf-8"):
        raise click.ClickException(f"{page}: not made by this command; move it away")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(reference(), encoding="utf-8")
    params.write_text(skeleton(params.read_text(encoding="utf-8")), encoding="utf-8")
    click.echo(f"written: {page}, {params}")


def skeleton(text: str) -> str:
    """params.yaml with a line for every setting, in order; what has no value is empty, values and comments stay."""
    from ruamel.yaml import YAML

    from dicap.settings import known_keys

    values = YAML(typ="safe", pure=True).load(text)
    lines, before = text.splitlines(), ""  # before: the key in whose place, or behind which, the last one stands
    for key in known_keys():
        section, _, name = key.rpartition(".")
        if section and not values.get(section):  # absent, empty, or no section
            if section in values:
                lines[_line(lines, section)] = f"{section}:"
            else:
                place = _end(lines, before.split(".")[0])
                lines[place:place] = ["", f"{section}:"]
            values[section] = {}
        if name not in (values[section] if section else values):
            place = _end(lines, before if before.startswith(f"{section}.") or not section else section, inner=bool(section))
            lines.insert(place, f"  {name}:" if section else f"{name}:")
        before = key
    return "\n".join(lines) + "\n"


def _line(lines: list[str], key: str) -> int:
    """The line of a key, dotted where it lies in a section."""
    section, _, name = key.rpartition(".")
    start = _line(lines, section) + 1 if section else 0
    return next(i for i in range(start, len(lines)) if lines[i].startswith(f"  {name}:" if section else f"{name}:"))


def _end(lines: list[str], key: str, *, inner: bool = False) -> int:
    """The line behind a key and what is indented below it; `inner`: behind the line itself. No key: the first line."""
    if not key:
        return 0
    place = _line(lines, key) + 1
    while not inner and place < len(lines) and lines[place].startswith(" "):
        place += 1
    return place


def reference() -> str:
    """The page: settings by section with type, published value and meaning; then every command's help."""
    parts = [
        "# Reference\n\nMade by `dicap-stage reference --write` from the settings and the commands; a test keeps it current.",
        "## Settings\n\nA key is looked up in `params.yaml`, then in `configs/<dataset>.yaml` and `configs/<protocol>.yaml`; "
        "what none of them says has the value below. Without a mark it is stated in a publication or follows from one; * is our "
        "reading where none states it, for which docs/methods.md gives the reason; ° is this program's own. "
        "Change one for a run: `dvc exp run -S train.epochs=5`.",
        *_settings(),
        "## Commands\n\nAll take `-h`. Before the command: `--quiet` says nothing but errors, `--json` prints one JSON object.",
        *_commands(),
    ]
    return "\n\n".join(parts) + "\n"


def _settings():
    """One table per section."""
    from dicap.settings import Section, Settings

    top, sections = {}, []
    for name, field in Settings.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            sections.append(f"### {name}\n\n{(kind.__doc__ or '').strip()}\n\n{_table(kind.model_fields)}")
        else:
            top[name] = field
    return [f"### Top level\n\n{_table(top)}", *sections]


def _table(fields) -> str:
    lines = ["| key | type | value | meaning |", "| --- | --- | --- | --- |"]
    for key, field in fields.items():
        value = None if field.is_required() else field.default
        shown = "" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"
        mark = {"assumed": " *", "own": " °"}.get((field.json_schema_extra or {}).get("origin", ""), "")
        lines.append(f"| `{key}` | {_words(field.annotation, field.metadata)} | {shown}{mark} | {field.description} |")
    return "\n".join(line.replace("|  |", "| |") for line in lines)


_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def _words(kind, limits=()) -> str:
    """A type in words, with the limits that pydantic keeps beside it."""
    import types
    import typing

    if typing.get_origin(kind) is typing.Annotated:
        inner, *fields = typing.get_args(kind)
        return _words(inner, [limit for field in fields for limit in field.metadata])
    if typing.get_origin(kind) is typing.Literal:
        text = ", ".join(map(str, typing.get_args(kind)))
    elif typing.get_origin(kind) in (typing.Union, types.UnionType):
        text = " or ".join(map(_words, typing.get_args(kind)))
    else:
        text = "null" if kind is type(None) else kind.__name__
    found = [(sign, getattr(limit, name)) for limit in limits for name, sign in _SIGNS.items() if hasattr(limit, name)]
    return ", ".join([text, *(f"{sign} {_power(value)}" for sign, value in found)])


def _power(value) -> str:
    return "2^32" if value == 2**32 else str(value)


def _commands():
    from stages.cli import PIPELINE, TOOLS, USE, main

    names = ["-h", "--help"]
    context = click.Context(main, info_name="dicap-stage", terminal_width=100, help_option_names=names)
    for title, group in (("Pipeline", PIPELINE), ("Your own data", USE), ("Tools", TOOLS)):
        yield f"### {title}"
        for name in group:
            found = main.get_command(context, name)
            assert found is not None, name
            own = click.Context(found, info_name=name, parent=context, terminal_width=100, help_option_names=names)
            yield f"#### {name}\n\n```\n{found.get_help(own)}\n```"
