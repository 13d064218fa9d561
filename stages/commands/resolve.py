"""`dicap-stage resolve`: what each stage of the pipeline depends on, so that DVC runs what changed and nothing else."""

import re
from pathlib import Path

import click

from dicap import __version__
from dicap.errors import SettingsError
from stages.support.common import ARTIFACTS, params_option, project_root, resolve_and_warn
from stages.support.terminal import finish

RESOLVED = ARTIFACTS / "resolved"
REQUIREMENTS = Path("requirements.txt")  # written by `dicap-stage new`
ASKED = re.compile(r"^dicap==(\d+(?:\.\d+)*)\s*$", re.MULTILINE)


@click.command("resolve")
@params_option
def command(params: Path) -> None:
    """Write down what each stage depends on, a file per stage: settings, code, labels and photographs, weights, libraries.

    A stage of the pipeline depends on its file. Where the result of a stage cannot change, the file does not: a comment, a value
    that was in force before, or the code of another method leave it as it is. Photographs are told by size and time of change.
    """
    import json

    _check_version()
    from dicap.files.atomic import replacing
    from dicap.provenance.dependencies import STAGE_SETTINGS, code, relevant
    from dicap.provenance.external import surroundings

    settings = resolve_and_warn(params).settings
    for stage in STAGE_SETTINGS:
        used = relevant(settings, stage)
        content = {"settings": used, "code": code(stage, settings)} | surroundings(stage, settings, used, project_root())
        with replacing(RESOLVED / f"{stage}.json") as temporary:
            temporary.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    text = f"{RESOLVED}: settings and code of {len(STAGE_SETTINGS)} stages"
    finish("resolve", {"folder": str(RESOLVED)}, ["dicap-stage convert"], text=text)


def _check_version() -> None:
    """Raise SettingsError where the project was made with a newer version than the installed one (requirements.txt)."""
    from packaging.version import Version

    if REQUIREMENTS.is_file() and (asked := ASKED.search(REQUIREMENTS.read_text(encoding="utf-8"))):
        if Version(asked[1]) > Version(__version__):
            raise SettingsError(
                f"{REQUIREMENTS}: dicap: found {asked[1]}, but {__version__} is installed; pip install -r {REQUIREMENTS}"
            )
        if Version(asked[1]) < Version(__version__):
            click.echo(
                f"Warning: {REQUIREMENTS}: dicap=={asked[1]} stands there and {__version__} runs; commit the new version",
                err=True,
            )
