"""`dicap-stage report`: all results of a run on one page."""

from pathlib import Path

import click

from dicap.settings.checks import unread
from stages.support.common import ARTIFACTS, data_folder, load, params_option
from stages.support.terminal import finish


@click.command("report")
@params_option
def command(params: Path) -> None:
    """Draw all results of a run on one self-contained page."""
    from dicap.files.json_files import read_json
    from dicap.metrics.warnings import score_in_words
    from dicap.report.page import build_report
    from stages.support.environment import environment

    settings = load(params)
    data_folder(settings)  # raises DataError for another data set
    page = build_report(ARTIFACTS, settings.model_dump(), environment(), ARTIFACTS / "report", unread(settings))
    metrics = read_json(ARTIFACTS / "evaluate" / "details.json")
    score = None if metrics.get("map") is None else score_in_words(metrics)
    finish("report", {"mAP": score, "page": str(page)}, ["dvc exp show"])
