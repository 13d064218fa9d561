"""Code for all commands: settings, paths of the project, common options."""

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dicap.errors import DataError, SettingsError, did_you_mean
from dicap.files.json_files import read_json
from dicap.files.locks import locked
from dicap.settings import Resolved, Settings, known_keys, resolve
from dicap.settings import load_settings as load  # noqa: F401  # the commands import it from here

if TYPE_CHECKING:
    from dicap.data.sources.base import RawSet

ARTIFACTS = Path("artifacts")
FOLLOWING = {"warmup": "train", "train": "finetune", "finetune": "report"}
# One path for all data sets, so that every `dvc.lock` has it. If the lock's stage lacks an output, DVC treats the hash as one of
# DVC 2. With a folder per data set DVC read the whole array twice in each stage of a sweep (seen with DVC 3.67).
DATA = Path("data") / "converted"
PIXELS = Path("data") / "images.sha256"  # checksums of the array and of the test split, on which features depend
PARAMS = Path("params.yaml")  # the pipeline's settings


_FILE = click.Path(path_type=Path, dir_okay=False)
params_option = click.option("--params", type=_FILE, default=PARAMS, show_default=True, help="The experiment's settings.")


def take_turns(params: Path) -> None:
    """Lock a settings file, if it exists, until the command ends; other commands that write it wait."""
    if params.is_file():
        click.get_current_context().with_resource(locked(params, wait=True))


def resolve_and_warn(params: Path) -> Resolved:
    """Settings and their origins; prints a line on stderr for every suspicious setting. Raises SettingsError."""
    resolved = resolve(params)
    if "DICAP_PROJECT" not in os.environ:  # no warnings in a cell of a sweep: a grid sets values for all its cells
        for line in resolved.warnings:
            click.echo(f"Warning: {line}", err=True)
    return resolved


def project_root() -> Path:
    """The project's folder: in temporary DVC runs and in cells of a sweep the original folder, not the working copy."""
    # In a cell DVC_ROOT is the cell's worktree, which is removed when the cell ends.
    return Path(os.environ.get("DICAP_PROJECT") or os.environ.get("DVC_ROOT", ".")).resolve()


def data_folder(settings: Settings) -> Path:
    """The folder of the converted data set. Raises DataError if it holds another data set than the settings name."""
    try:
        converted = read_json(DATA / "meta.json").get("dataset", settings.dataset)
    except DataError:
        return DATA  # missing or damaged: the reader of the folder raises an error
    if converted != settings.dataset:
        raise DataError(
            f"{DATA}: found the data set {converted!r}, but params.yaml: dataset is {settings.dataset!r}; run `dvc repro` "
            "(or `dicap-stage convert`)"
        )
    return DATA


def raw_set(settings: Settings) -> "RawSet":
    """The images and labels of the settings, listed by `read_raw`. Raises DataError if they are missing."""
    from dicap.data.sources import read_raw

    # Relative paths start at the current folder, as in DVC; a queued run has its own folder.
    lists = Path(settings.convert.lists) if settings.convert.lists else None
    return read_raw(settings.dataset, Path(settings.data_root).resolve(), settings.own, lists)


def _checked(context: click.Context, option: click.Parameter, device: str) -> str:
    """The name of a device. A device that does not exist is refused before the work starts."""
    if device not in ("auto", "cpu"):  # these always exist, and checking others loads torch
        from dicap.machine.runtime import Runtime

        Runtime.choose(device)
    return device


_DEVICES = "auto, cpu, cuda, cuda:1 ... [DICAP_DEVICE]"
device_option = click.option(
    "--device", envvar="DICAP_DEVICE", default="auto", show_default=True, callback=_checked, help=_DEVICES
)


def out_option(default: str | None, text: str, *, folder: bool = False) -> Callable:
    """The option `--out FILE`, or with `folder` `--out FOLDER`; the command gets a path."""
    kind = click.Path(path_type=Path, file_okay=not folder, dir_okay=folder)
    return click.option("--out", type=kind, default=default and Path(default), show_default=True, help=text)


def gallery_option(function: Callable) -> Callable:
    """The option `--gallery FOLDER`, a page of the predictions; refused if it would replace the output of `--out`."""

    @functools.wraps(function)
    def begin(*args: Any, gallery: Path | None, out: Path | None, **more: Any) -> Any:
        from dicap.files.written import check_own_folder

        if gallery is not None:
            if out is not None and out.resolve().is_relative_to(gallery.resolve()):
                raise click.UsageError(f"--out: {out} lies in {gallery}, which --gallery replaces as a whole; give another path")
            check_own_folder(gallery)  # before hours of predicting, not after
        return function(*args, gallery=gallery, out=out, **more)

    text = "Also write a page of thumbnails to this folder."
    return click.option("--gallery", type=click.Path(path_type=Path, file_okay=False), help=text)(begin)


def machine_options(function: Callable) -> Callable:
    """Options of the machine, which change no result and rerun no stage; for `dvc repro` they are environment variables."""
    amp = click.option(
        "--amp",
        envvar="DICAP_AMP",
        type=click.Choice(["auto", "off", "bf16", "fp16"]),
        default="auto",
        show_default=True,
        help="Mixed precision; auto: bf16 or fp16 on a GPU, off on a CPU. [DICAP_AMP]",
    )
    workers = click.option("--workers", envvar="DICAP_WORKERS", type=click.IntRange(0), help="Loader processes. [DICAP_WORKERS]")
    return device_option(amp(workers(function)))


def known_results(stage: str) -> Path:
    """The folder of a stage's per-image stores, in the original project, so that queued and temporary runs use it too."""
    return project_root() / ".dicap" / "store" / stage


def known_features() -> Path | None:
    """`known_results` of the features, if the folder exists and is writable, else None."""
    folder = known_results("features")
    return folder if os.access(folder, os.W_OK) else None


def changes_option(values: str, text: str) -> Callable:
    """The repeatable option `-S KEY=VALUE`, for `parse_changes`."""
    return click.option("-S", "--set-param", "changes", multiple=True, metavar=f"KEY={values}", help=f"{text} May be repeated.")


# One of several values, with quotes (then it may contain commas) or without.
_VALUE = r"""(?:'[^']*'|"[^"]*"|\s*[^\s,][^,]*)"""


def parse_changes(changes: tuple[str, ...]) -> dict[str, list]:
    """{setting: values} of options `-S KEY=VALUE[,VALUE]`. Raises SettingsError.

    A value is a number, true, false or null if YAML reads it so, else the text as typed, without its quotes.
    """
    keys = list(known_keys())
    values: dict[str, list] = {}
    for change in changes:
        key, _, text = change.partition("=")
        if key not in keys or not re.fullmatch(f"{_VALUE}(,{_VALUE})*", text):
            hint = did_you_mean(key, keys) if key not in keys else ""
            raise SettingsError(f"-S {change}: expected SETTING=VALUE or SETTING=VALUE,VALUE with a setting of params.yaml{hint}")
        if key in values:
            raise SettingsError(f"-S {change}: {key} has values already; give all in one, as -S {key}=VALUE,VALUE")
        values[key] = [_value(part) for part in re.findall(f"{_VALUE}(?=,|$)", text)]
    return values


def _value(text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    if text[0] in "'\"" and text[-1] == text[0] and len(text) > 1:
        return text[1:-1]
    text = text.strip()
    try:
        value = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError):
        return text
    return value if isinstance(value, bool | int | float) or text == "null" else text
