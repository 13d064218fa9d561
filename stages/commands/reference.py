"""`dicap-stage reference`: docs/reference.md, generated from the settings and the commands."""

import types
import typing

import click

from stages.support.terminal import finish


@click.command("reference")
def command() -> None:
    """Print the reference of all settings and commands as Markdown, for docs/reference.md."""
    finish("reference", {"markdown": reference()}, lines=reference().splitlines())


def reference() -> str:
    """The page: settings by section with type, default value and meaning; then the help of every command."""
    parts = [
        "# Reference\n\n`dicap-stage reference > docs/reference.md` generates this page; a test keeps it current.",
        "## Settings\n\nA key is looked up in `params.yaml`, then in `configs/<protocol>.yaml` and `configs/<dataset>.yaml`; "
        "if no file has it, the value below counts. A value without a mark is stated in a publication or implied by one. "
        "* marks our reading of a value that no publication states (docs/methods.md gives the reason), ° a setting of our own. "
        "Change a setting for one run: `dvc exp run -S train.epochs=5`, or `-S +finetune.epochs=5` if params.yaml lacks the key.",
        *_settings(),
        "## Commands\n\nAll take `-h`. Before the command, `--quiet` prints errors only and `--json` one JSON object.",
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
    """A type in words, with its pydantic limits."""
    if typing.get_origin(kind) is typing.Annotated:
        inner, *fields = typing.get_args(kind)
        return _words(inner, [limit for field in fields for limit in field.metadata])
    if typing.get_origin(kind) is typing.Literal:
        text = ", ".join(map(str, typing.get_args(kind)))
    elif typing.get_origin(kind) in (typing.Union, types.UnionType):
        text = " or ".join(map(_words, typing.get_args(kind)))
    else:
        text = "null" if kind is type(None) else kind.__name__
    bounds = [(sign, getattr(limit, name)) for limit in limits for name, sign in _SIGNS.items() if hasattr(limit, name)]
    return ", ".join([text, *(f"{sign} {'2^32' if value == 2**32 else value}" for sign, value in bounds)])


def _commands():
    from stages.cli import PIPELINE, TOOLS, USE, main

    names = ["-h", "--help"]
    context = click.Context(main, info_name="dicap-stage", terminal_width=100, help_option_names=names)
    for title, group in (("Pipeline", PIPELINE), ("Your own data", USE), ("Tools", TOOLS)):
        yield f"### {title}"
        for name in group:
            entry = main.get_command(context, name)
            assert entry is not None, name
            own = click.Context(entry, info_name=name, parent=context, terminal_width=100, help_option_names=names)
            yield f"#### {name}\n\n```\n{entry.get_help(own)}\n```"
