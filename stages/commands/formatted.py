"""`dicap-stage formatted`: a data set by the published npy lists."""

from pathlib import Path

import click

from dicap.errors import SettingsError
from stages.support.common import load, params_option, project_root


@click.command("formatted")
@params_option
@click.argument("lists", type=click.Path(path_type=Path))
@click.option("--workers", envvar="DICAP_WORKERS", type=click.IntRange(0), help="Processes; default: one a core. [DICAP_WORKERS]")
def command(params: Path, lists: Path, workers: int | None) -> None:
    """Convert the data set by formatted_{train,val}_{images,labels}.npy in LISTS, those of the published code."""
    from dicap.data.sources.benchmarks.formatted import read_formatted
    from stages.commands.convert import convert_raw

    settings = load(params)
    if not settings.data_root:
        raise SettingsError("params.yaml: data_root: found null, expected the folder of the images that the lists name")
    raw = read_formatted(settings.dataset, lists, project_root() / settings.data_root)
    convert_raw(raw, settings, workers)
