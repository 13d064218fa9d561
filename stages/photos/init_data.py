"""`dicap-stage init-data`: write the settings for a folder of photographs."""

import csv
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from dicap.errors import SettingsError
from dicap.settings import Own, change_settings, read_yaml
from stages.support.common import PARAMS, load, params_option, project_root, take_turns
from stages.support.terminal import columns, finish, say

if TYPE_CHECKING:
    from dicap.photos.survey import Survey

SHOWN = 40  # classes
MAX_REJECTED = 0.01  # convert.max_rejected as published
ELSEWHERE = ("unlabeled_root", "test_share", "added", "new_classes")  # settings of `own` with options of other names, or none
READING = tuple(key for key in Own.model_fields if key not in ELSEWHERE)
LISTS = ("files", "classes", "names", "ignore")


def reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """An option for each setting that says how labels are read."""
    for key in reversed(READING):
        field = Own.model_fields[key]
        words = [one for kind in (field.annotation, *get_args(field.annotation)) for one in get_args(kind)]
        choice = [word for word in words if isinstance(word, str) and word != "auto"]
        meaning = re.split(r";\s", field.description or "")[0] + "."
        meaning = meaning[0].upper() + meaning[1:] + (" Several: a comma between." if key in LISTS else "")
        kind = click.Choice(choice) if choice else None
        command = click.option(f"--{key.replace('_', '-')}", key, type=kind, multiple=key in LISTS, help=meaning)(command)
    return command


@click.command("init-data")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--unlabeled", type=click.Path(path_type=Path, file_okay=False), help="A second folder, of images without labels.")
@click.option(
    "--test-share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Share of the labelled images to draw as test split.",
)
@reading_options
@click.option("--dry-run", is_flag=True, help="Look, and leave params.yaml as it is.")
@params_option
def command(folder: Path, unlabeled: Path | None, test_share: float | None, dry_run: bool, params: Path, **reading: Any) -> None:
    """Look at FOLDER, show how its labels are understood, and write the settings to run it.

    FOLDER holds images and their labels as a table (CSV or Parquet), a COCO or Label Studio JSON, Pascal VOC or CVAT XML, or
    one folder for each label; it may also be the file of labels itself. Where the reading is not plain, the command stops with a
    question and names the option that answers it. It writes its reading into params.yaml, and `convert` follows it.
    """
    from dicap.photos.readers.question import Question
    from dicap.photos.survey import survey

    added, forgotten = _added(params, folder)
    chosen = {key: _listed(value) if key in LISTS else value for key, value in reading.items() if value}
    aside = None if unlabeled is None else str(unlabeled.resolve())
    options = Own.model_validate({"unlabeled_root": aside, "test_share": test_share or 0.0, "added": added} | chosen)
    try:
        overview, options = survey(folder.resolve(), options)
    except Question as question:  # the proposed command has all that was typed
        place = [str(folder), *["--dry-run"] * dry_run, *["--params", str(params)] * (params != PARAMS)]
        question.args = (question.proposing("init-data", *place),)
        raise
    ratio, why = overview.ratio
    settings = {
        "dataset": "table",
        "data_root": str(overview.root),
        "ratio": ratio,
        "protocol": "recommended",
        "own.test_share": options.test_share or None,
        "own.unlabeled_root": options.unlabeled_root,
    } | ({"own.added": None, "own.new_classes": None} if forgotten else {})  # else unchanged: an import may have run meanwhile
    defaults = Own()
    settings |= {f"own.{key}": None if (v := getattr(options, key)) == getattr(defaults, key) else v for key in READING}
    if not dry_run:
        take_turns(params)
        change_settings(params, settings)
    train = max(1, overview.counts["train"])
    rows = [(name, str(seen), f"{seen / train:.1%}", str(test)) for name, seen, test in overview.classes]
    lines = [f"{what:<8}  {how}" for what, how in [*overview.understood, ("ratio", f"{ratio:g}: {why}")]]
    lines += ["", *columns([("class", "train", "share", "test"), *rows[:SHOWN]], right={1, 2, 3})]
    lines += [f"... and {len(rows) - SHOWN} more classes"] * (len(rows) > SHOWN)
    lines += ["", *columns([("image", "split", "labels"), *overview.examples]), ""]
    lines += [f"note: {note}" for note in (*forgotten, *overview.notes)]
    lines += [f"problem: {problem}" for problem in overview.problems]
    for line in lines:
        say(line)
    facts = {
        "format": options.format,
        "images": ", ".join(f"{count} {split}" for split, count in overview.counts.items() if count),
        "classes": len(overview.classes),
        "labels an image": round(overview.labels_per_image, 2),
        "ratio": ratio,
        "unreadable": len(overview.unreadable),
        "missing": len(overview.missing),
        "problems": len(overview.problems),
        "settings": "not written" if dry_run else str(params),
    }
    place = [] if params.parent == Path() else [f"cd {shlex.quote(str(params.parent))}"]
    finish("init-data", facts, [*place, *_next(overview, dry_run, params)])


def _listed(values: Iterable[str]) -> list[str]:
    """The values of an option that may hold several, separated by commas, and may occur several times."""
    return [one for value in values for one in next(csv.reader([value], skipinitialspace=True), [])]


def _added(params: Path, folder: Path) -> tuple[str | None, list[str]]:
    """The labels imported so far (own.added) if they belong to this folder's images; else None and a note."""
    values = read_yaml(params) if params.exists() else {}
    own, root = values.get("own") or {}, values.get("data_root")
    if not isinstance(own, dict):
        raise SettingsError(f"{params}: own: found {own!r}, expected a section, as `own: {{}}`; correct it, or take the line out")
    if (added := own.get("added")) is None:
        return None, []
    same = root is not None and not _images_of(project_root() / root).isdisjoint(_images_of(folder))
    note = f"the labels in {added} were given to the images of {root} and are not used here: own.added is empty now"
    return (added, []) if same else (None, [note])


def _images_of(root: Path) -> set[Path]:
    """The folders that may hold the images, given a folder or the file of labels in it."""
    from dicap.data.sources.files import base_of

    root = root.resolve()
    return {base_of(root), root.parent if root.is_file() else root}


def _next(overview: "Survey", dry_run: bool, params: Path) -> list[str]:
    """What to type next; the run only if it can succeed."""
    try:
        allowed = load(params).convert.max_rejected
    except SettingsError:  # `check` reports the error
        allowed = MAX_REJECTED
    if len(overview.unreadable) + len(overview.missing) > allowed * sum(overview.counts.values()):
        return ["repair or remove the files named above, then look again"]
    if len(overview.everywhere) == len(overview.classes):
        return [f"add photographs without {overview.classes[0][0]}, labelled `-`, then look again"]
    return ["the same without --dry-run"] if dry_run else ["dvc repro", "git commit --all    # a sweep runs what is committed"]
