"""`dicap-stage resolve`: what each stage of the pipeline depends on, so that DVC runs what changed and nothing else."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from dicap import __version__
from dicap.errors import SettingsError
from dicap.files.atomic import replacing
from dicap.settings import Settings
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
    _check_version()
    texts = dependencies_of(resolve_and_warn(params).settings, partial(beside, project=project_root()))
    for stage, text in texts.items():
        with replacing(RESOLVED / f"{stage}.json") as temporary:
            temporary.write_text(text, encoding="utf-8")
    finish("resolve", {"folder": str(RESOLVED)}, ["dicap-stage convert"])


def dependencies_of(settings: Settings, beside: Callable[[str, Settings], dict[str, Any]]) -> dict[str, str]:
    """What each stage depends on, as a text by stage; `beside`: as the function of this name."""
    from dicap.provenance.dependencies import STAGE_SETTINGS, relevant

    return {
        stage: json.dumps({"settings": relevant(settings, stage)} | beside(stage, settings), indent=1, sort_keys=True) + "\n"
        for stage in STAGE_SETTINGS
    }


def beside(stage: str, settings: Settings, project: Path, root: Path | None = None) -> dict[str, Any]:
    """What a stage depends on beside its settings; neither seed nor ratio alters it.

    Args:
        project: what relative paths of data and weights are relative to. root: the folder of the code; None: of what runs.
    """
    from dicap.provenance.dependencies import code, relevant
    from dicap.provenance.external import surroundings
    from dicap.provenance.source_code import ROOT

    return {"code": code(stage, settings, root or ROOT)} | surroundings(stage, settings, relevant(settings, stage), project)


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
