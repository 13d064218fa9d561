"""`dicap-stage config`: the settings in force and the origin of each value."""

import json
from pathlib import Path

import click

from dicap.settings import flatten
from stages.support.common import params_option, resolve_and_warn
from stages.support.terminal import spoken


@click.command("config")
@params_option
def command(params: Path) -> None:
    """Print the settings in force and the origin of each value."""
    resolved = resolve_and_warn(params)
    values = dict(flatten(resolved.settings.model_dump()))
    if spoken()["json"]:
        rows = {key: {"value": value, "from": resolved.origins.get(key)} for key, value in values.items()}
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(map(len, values))
    for key, value in values.items():
        text = "null" if value is None else str(value)
        click.echo(f"{key:<{width}}  {text:<24}  {resolved.origins.get(key, 'not set')}")
