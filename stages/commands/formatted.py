"""`dicap-stage formatted`: the published npy lists."""

from pathlib import Path

import click

from stages.support.common import data_folder, load, params_option, project_root


@click.group("formatted")
def command() -> None:
    """Import or export formatted_{train,val}_{images,labels}.npy, the lists of the published code."""


@command.command("export")
@params_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to write to; default: artifacts/formatted/<dataset>.",
)
@click.option("--full-paths", is_flag=True, help="Paths below data_root instead of the published code's own.")
def export(params: Path, out: Path | None, full_paths: bool) -> None:
    """Write the lists of the converted data set."""
    from dicap.data.sources.benchmarks.formatted import write_formatted

    settings = load(params)
    out = out or Path("artifacts") / "formatted" / settings.dataset
    counts = write_formatted(data_folder(settings), out, full_paths=full_paths)
    click.echo(f"{out}: {counts['train']} train, {counts['test']} val images in four npy files")


@command.command("import")
@params_option
@click.argument("lists", type=click.Path(path_type=Path))
@click.option("--workers", envvar="DICAP_WORKERS", type=click.IntRange(0), help="Processes; default: one a core. [DICAP_WORKERS]")
def import_(params: Path, lists: Path, workers: int | None) -> None:
    """Convert the data set by the npy files in LISTS instead of the archive's own lists."""
    from dicap.data.sources.benchmarks.formatted import read_formatted
    from dicap.errors import SettingsError
    from stages.commands.convert import convert_raw

    settings = load(params)
    if not settings.data_root:
        raise SettingsError("params.yaml: data_root: found null, expected the folder of the images that the lists name")
    raw = read_formatted(settings.dataset, lists, project_root() / settings.data_root)
    convert_raw(raw, settings, workers)
