"""Exports of Label Studio as JSON: choices, taxonomies and the labels of boxes and other shapes become labels of the image."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from dicap.data.sources.files import is_image_name, list_images
from dicap.errors import DataError, first_of
from dicap.photos.readers.heads import USUAL, plain
from dicap.photos.readers.listing import Listing, Row, read_json, split_of
from dicap.photos.readers.question import Question, ask_of_keys
from dicap.photos.readers.sheet import MARKS
from dicap.settings import Own


def is_export(path: Path) -> bool:
    """Whether a file is a list of tasks with annotations, as JSON-MIN is not. Raises DataError if it is no JSON."""
    content = read_json(path)
    return isinstance(content, list) and any(isinstance(task, dict) and "annotations" in task for task in content[:1])


def read(root: Path, own: Own) -> Listing:
    """Read the tasks. A task with an annotation is labelled, perhaps with no class; a task that is only skipped is unlabelled.

    If the annotations of a task differ, the ground truth counts, else the newest; without times `own.answers` decides. A path on
    the server matches a file below the folder by name, with or without the eight letters that an upload adds. `own.classes` names
    the controls that hold classes if there are several, and `own.image` the labelled image if a task names several. `own.split`
    and `own.group` may be other keys of tasks.
    """
    tasks, keys, pairs = [], set(), set()
    for path in (root / name for name in own.files or ()):
        for number, task in enumerate(read_json(path), 1):
            where = f"{path}: task {number}"
            try:
                answers = [one for one in task.get("annotations") or [] if not one.get("was_cancelled")]
                data, images = task["data"], _images(task["data"], own.image)
                keys |= data.keys() - images.keys()
                chosen = [*map(_chosen, answers)]
                pairs |= {pair for choices in chosen for pair in choices}
            except (KeyError, TypeError, AttributeError, ValueError):  # ValueError: a faulty address
                raise DataError(f"{where} has no image or no answers; export the project as JSON") from None
            tasks.append((where, data, images, answers, chosen))
    files, others = ", ".join(own.files or ()), sorted(key for key in keys if not USUAL.fullmatch(plain(key)))
    ask_of_keys(files, others, sorted(keys), own)
    controls = _controls(pairs, own.classes, files)
    existing = {Path(path).name for path in list_images(root, required=False)}
    rows, differ = [], 0
    for where, data, images, answers, chosen in tasks:
        found = {path for key, path in images.items() if own.image in (None, key)}
        if len(found) != 1:
            raise DataError(f"{where} names {len(found)} images (keys {', '.join(data)}): which is labelled (init-data --image)?")
        image = found.pop()
        if upload := re.search("data/upload/(?:.*/)?([0-9a-f]{8}-([^/]+))$", image):
            image = upload[1] if upload[1] in existing else upload[2]
        split, group = ("" if data.get(key) is None else str(data[key]) for key in (own.split or "", own.group or ""))
        names = [frozenset(name for control, name in choices if control in controls) for choices in chosen]
        labels = _counted(answers, names, own.answers, where)
        differ += len({*chosen}) > 1
        rows.append(Row(image, labels, split_of(split, where), group=group or None, where=where))
    way = "all count" if own.answers == "all" else "the ground truth counts, or the newest or last answer"
    return Listing(rows, {"export": files}, [f"tasks with answers that differ, of which {way}: {differ}"] if differ else [])


def _controls(pairs: set[tuple[str, str]], classes: list[str] | None, files: str) -> set[str]:
    """The controls that hold classes: those that `own.classes` names, or the only one. Raises DataError if that is unclear."""
    names_of: dict[str, set[str]] = {}
    for control, name in pairs:
        names_of.setdefault(control, set()).add(name)
    binary = {control for control, names in names_of.items() if all(name.casefold() in MARKS for name in names)}
    kept = {*(classes or names_of)}
    if not kept <= names_of.keys() - binary or (len(kept) > 1 and not classes):
        shown = "; ".join(f"{control}: {first_of(sorted(names), 3)}" for control, names in sorted(names_of.items()))
        text = f"{files}: which controls hold the classes ({shown})? Name them: init-data --classes"
        raise DataError(f"{text}. A control of yes and no holds none: write labels.csv with a column of 0 and 1 for each class")
    return kept


def _counted(answers: list[dict[str, Any]], names: list[frozenset[str]], way: str, where: str) -> frozenset[str] | None:
    """The names that count for a task, of those of each answer; None without answers.

    Raises Question if answers differ and none is preferred.
    """
    if not answers:
        return None
    if way == "all":
        return frozenset().union(*names)
    times = [str(answer.get("updated_at") or answer.get("created_at") or "") for answer in answers]
    ranks = [(bool(answer.get("ground_truth")), time if all(times) else "") for answer, time in zip(answers, times, strict=True)]
    best = [some for some, rank in zip(names, ranks, strict=True) if rank == max(ranks)]
    if len({*best}) > 1 and way == "auto":
        text = f"{where}: {len(answers)} answers that differ, without times: which one counts, or --answers all?"
        raise Question(text, answers="last")
    return best[-1]


def _chosen(answer: dict[str, Any]) -> frozenset[tuple[str, str]]:
    """The control and the name of everything that an answer chooses; texts, ratings and places in the image choose nothing."""
    return frozenset(
        (str(entry.get("from_name") or key), name)
        for entry in answer.get("result") or []
        for key, value in (entry.get("value") or {}).items()
        if key in ("choices", "taxonomy") or key.endswith("labels")
        for name in _names(value)
    )


def _names(value: Any) -> list[str]:
    """The texts in a value: one, or those in a list of any depth, as a taxonomy has it."""
    return [value.strip()] if isinstance(value, str) else [name for part in value for name in _names(part)]


def _images(data: dict[str, Any], key: str | None = None) -> dict[str, str]:
    """The paths of a task's images, by their keys; `key` is one of these keys."""
    paths = {one: _path(text) for one, text in data.items() if isinstance(text, str)}
    return {one: path for one, path in paths.items() if one in ("image", key) or is_image_name(path)}


def _path(address: str) -> str:
    """The path in an address. A name that `#` or `?` would end stays whole: its beginning may be another photograph's name."""
    parts = urlsplit(address)
    path = parse_qs(parts.query).get("d", [unquote(parts.path)])[0]
    return path if is_image_name(path) else address
