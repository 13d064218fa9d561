"""What every command needs: the settings, the project's places, the runtime choices."""

import os
from collections.abc import Callable
from pathlib import Path

import click

from dicap.settings import Settings, load_settings
from stages.launch import nproc_option

ARTIFACTS = Path("artifacts")


def params_option(function: Callable) -> Callable:
    """`--params FILE`, default params.yaml in the working directory."""
    return click.option(
        "--params",
        type=click.Path(path_type=Path, dir_okay=False),
        default=Path("params.yaml"),
        show_default=True,
        help="The experiment's settings.",
    )(function)


def load(params: Path) -> Settings:
    """Read and check the settings. Raises SettingsError."""
    return load_settings(params)


def project_root() -> Path:
    """The project's folder. In queued and temporary DVC runs this is the original one, not the working copy."""
    return Path(os.environ.get("DVC_ROOT", ".")).resolve()


def data_folder(settings: Settings) -> Path:
    """Where the converted data set lies."""
    return Path("data") / settings.dataset


def runtime_options(function: Callable) -> Callable:
    """Choices that change no result and retrain nothing: options, or environment variables for `dvc repro`."""
    options = [
        click.option(
            "--device",
            envvar="DICAP_DEVICE",
            default="auto",
            show_default=True,
            help="auto, cpu, cuda, cuda:1 ... [DICAP_DEVICE]",
        ),
        click.option(
            "--amp",
            envvar="DICAP_AMP",
            type=click.Choice(["auto", "off", "bf16", "fp16"]),
            default="auto",
            show_default=True,
            help="Mixed precision; auto: bf16 or fp16 on a GPU, off on a CPU. [DICAP_AMP]",
        ),
        click.option("--workers", envvar="DICAP_WORKERS", type=click.IntRange(0), help="Loader processes. [DICAP_WORKERS]"),
        click.option(
            "--data-on",
            envvar="DICAP_DATA_ON",
            type=click.Choice(["host", "device"]),
            default="host",
            show_default=True,
            help="Draw the views on the processor or on the accelerator. [DICAP_DATA_ON]",
        ),
        click.option("--compile", "compiled", envvar="DICAP_COMPILE", is_flag=True, help="Use torch.compile. [DICAP_COMPILE]"),
        click.option("--fresh", is_flag=True, help="Discard the saved state instead of resuming."),
    ]
    for option in reversed(options):
        function = option(function)
    return nproc_option(function)
