"""`dicap-stage report`: everything a run found, on one page."""

from pathlib import Path

import click

from stages.support.common import ARTIFACTS, data_folder, load, params_option
from stages.support.terminal import finish


@click.command("report")
@params_option
def command(params: Path) -> None:
    """Draw everything on one self-contained page."""
    from dicap.files import artifacts as files
    from dicap.report.page import build_report
    from dicap.settings.checks import unread
    from stages.support.environment import environment

    settings = load(params)
    page = build_report(
        ARTIFACTS,
        settings.model_dump(),
        environment(),
        ARTIFACTS / "report",
        dataset=data_folder(settings),
        unread=unread(settings),
    )
    metrics = files.read_json(ARTIFACTS / "evaluate" / "metrics.json")
    interval = ""
    if metrics.get("map_low") is not None and metrics.get("map_high") is not None:
        interval = f"  (95 % interval {metrics['map_low']:.2f} to {metrics['map_high']:.2f})"
    score = None if metrics.get("map") is None else f"{metrics['map']:.2f}{interval}"
    text = (f"mAP {score}\n" if score else "") + f"Report: {page}"
    finish("report", {"mAP": score, "page": str(page)}, ["dvc exp show"], text=text)
