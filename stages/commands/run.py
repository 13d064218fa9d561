"""`dicap-stage run`: the whole pipeline in one process, without DVC's record of the run."""

from pathlib import Path

import click

from stages.support.common import params_option


@click.command("run")
@params_option
@click.pass_context
def command(context: click.Context, params: Path) -> None:
    """Run every stage in this folder, one after the other, without DVC.

    The results equal the results of `dvc repro`, but every stage runs each time. Device and number of processes come from the
    environment: DICAP_DEVICE, DICAP_WORKERS and the other variables in brackets in the stages' --help.
    """
    from stages.cli import PIPELINE, main

    for name in PIPELINE:
        stage = main.get_command(context, name)
        assert stage is not None
        with stage.make_context(name, ["--params", str(params)], parent=context) as own:
            stage.invoke(own)
