"""`dicap-stage reference`: docs/reference.md, made from the settings and the commands themselves."""

import click


@click.command("reference")
def command() -> None:
    """Print the reference of all settings and commands as Markdown; it is kept in docs/reference.md."""
    click.echo(reference(), nl=False)


def reference() -> str:
    """The page: settings by section with type, published default and meaning; then every command's help."""
    parts = [
        "# Reference\n\nMade by `dicap-stage reference` from the settings and the commands; a test keeps it current.",
        "## Settings\n\nA key is looked up in `params.yaml`, then in `configs/<dataset>.yaml`, `configs/<protocol>.yaml` and "
        "`configs/published.yaml`, whose values are the defaults below. Change one for a run: `dvc exp run -S train.epochs=5`.",
        *_settings(),
        "## Commands\n\nAll take `-h`. Before the command: `--quiet` says nothing but errors, `--json` prints one JSON object.",
        *_commands(),
    ]
    return "\n\n".join(parts) + "\n"


def _settings():
    """A table a section; the meaning of a key is the comment behind it in dicap/settings.py, or else in the YAML files."""
    import inspect
    from pathlib import Path

    from pydantic import BaseModel
    from ruamel.yaml import YAML

    from dicap import settings

    root = Path(__file__).parents[1]
    texts = [(root / name).read_text("utf-8") for name in ("configs/published.yaml", "params.yaml")]
    defaults = YAML(typ="safe", pure=True).load(texts[0])
    comments = {key: words for text in texts for key, words in _comments(text).items()}
    top, sections = [], []
    for name, field in settings.Settings.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            facts = _fields(inspect.getsource(kind))
            rows = [
                (key, facts[key][0], facts[key][1] or comments.get(f"{name}.{key}", ""), defaults.get(name, {}).get(key))
                for key in kind.model_fields
            ]
            sections.append(f"### {name}\n\n{(kind.__doc__ or '').strip()}\n\n{_table(rows)}")
        else:
            words, comment = _fields(inspect.getsource(settings.Settings))[name]
            top.append((name, words, comment or comments.get(name, ""), defaults.get(name)))
    return [f"### Top level\n\n{_table(top)}", *sections]


def _fields(source: str) -> dict[str, tuple[str, str]]:
    """{field: (type, comment)} of a class's source."""
    import re

    found = re.findall(r"^    (\w+): ([^#\n]+?)(?:  # (.*))?$", source, re.MULTILINE)
    return {name: (_plain(kind.strip()), comment) for name, kind, comment in found}


def _comments(text: str) -> dict[str, str]:
    """{dotted key: comment behind it} of a YAML file of two levels."""
    import re

    found, section = {}, ""
    for line in text.splitlines():
        match = re.match(r"( *)(\w+):[^#]*(?:# (.*))?$", line)
        if match:
            section = match[2] if not match[1] else section
            words = (match[3] or "").removeprefix("*").strip()
            if words:
                found[f"{section}.{match[2]}" if match[1] else match[2]] = words
    return found


def _plain(kind: str) -> str:
    """A type in words."""
    import re

    kind = re.sub(r"Annotated\[(\w+), Field\((.*)\)\]", lambda m: f"{m[1]}, {m[2]}", kind)
    kind = re.sub(r"Literal\[([^\]]*)\]", lambda m: m[1].replace('"', ""), kind)
    for sign, word in (("gt=", "> "), ("ge=", ">= "), ("lt=", "< "), ("le=", "<= "), (" | None", " or null"), (" | ", " or ")):
        kind = kind.replace(sign, word)
    known = {"Positive": "float, > 0", "NonNegative": "float, >= 0", "Share": "float, 0 to 1", "Count": "int, >= 1"}
    for name, words in known.items():
        kind = re.sub(rf"\b{name}\b", words, kind)
    return kind


def _table(rows) -> str:
    lines = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for key, kind, comment, default in rows:
        shown = "" if default is None else f"`{str(default).lower() if isinstance(default, bool) else default}`"
        lines.append(f"| `{key}` | {kind} | {shown} | {comment} |".replace("  ", " "))
    return "\n".join(lines)


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
