"""`dicap-stage resolve`: what each stage of the pipeline depends on, so that DVC runs what changed and nothing else."""

from pathlib import Path

import click

from stages.support.common import ARTIFACTS, params_option, project_root, resolve_and_warn
from stages.support.terminal import finish

RESOLVED = ARTIFACTS / "resolved"


@click.command("resolve")
@params_option
def command(params: Path) -> None:
    """Write down what each stage depends on, a file per stage: settings, code, labels and photographs, weights, libraries.

    A stage of the pipeline depends on its file. Where the result of a stage cannot change, the file does not: a comment, a value
    that was in force before, or the code of another method leave it as it is. Photographs are told by size and time of change.
    """
    import json

    from dicap.files.atomic import replacing
    from dicap.provenance.dependencies import STAGE_SETTINGS, code, relevant
    from dicap.provenance.external import surroundings

    settings = resolve_and_warn(params).settings
    for stage in STAGE_SETTINGS:
        used = relevant(settings, stage)
        content = {"settings": used, "code": code(stage, settings)} | surroundings(stage, settings, used, project_root())
        with replacing(RESOLVED / f"{stage}.json") as temporary:
            temporary.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    finish("resolve", {"folder": str(RESOLVED)}, ["dicap-stage convert"])
