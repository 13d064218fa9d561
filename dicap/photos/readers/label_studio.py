"""Exports of Label Studio as JSON: choices, boxes, polygons and taxonomies become labels of the image."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from dicap.data.sources.files import is_image_name, list_images
from dicap.errors import DataError, first_of
from dicap.photos.readers.heads import USUAL, plain
from dicap.photos.readers.listing import Listing, Row, read_json, split_of
from dicap.photos.readers.question import Question, ask_of_keys
from dicap.photos.readers.sheet import MARKS, NO
from dicap.settings import Own

SHAPES = ("rectangle", "ellipse", "polygon", "keypoint", "brush", "")  # answers that mark a place and may name no class
Choices = frozenset[tuple[str, str]]  # (control, name) of everything that one answer chooses


def is_export(path: Path) -> bool:
    """Whether a file is a list of tasks with images, also JSON-MIN, which `read` refuses. Raises DataError if it is no JSON."""
    content = read_json(path)
    try:
        return isinstance(content, list) and bool(_images(content[0].get("data", content[0])))
    except (IndexError, TypeError, AttributeError, ValueError):
        return False


def read(root: Path, own: Own) -> Listing:
    """Read the tasks. A task with an annotation is labelled, perhaps with no class; a task that is only skipped is unlabelled.

    If the annotations of a task differ, the ground truth counts, else the newest; without times `own.answers` decides. A path on
    the server matches a file below the folder by name, with or without the eight letters that an upload adds. `own.classes` names
    the controls that hold classes if there are several, and `own.image` the labelled image if a task names several. `own.split`
    and `own.group` may be other keys of tasks.
    """
    existing = {part for path in list_images(root, required=False) for part in (path, Path(path).name)}
    tasks: list[tuple[str, dict[str, Any], str, list[dict[str, Any]], list[Choices]]] = []
    others: dict[str, None] = {}
    for path in (root / name for name in own.files or ()):
        for number, task in enumerate(read_json(path), 1):
            where = f"{path}: task {number}"
            try:
                answers = [a for a in task.get("annotations") or [] if not a.get("was_cancelled")]
                chosen = [frozenset(_choices(answer.get("result") or [])) for answer in answers]
                data = task["data"]
                others |= dict.fromkeys(data.keys() - {own.image, *_images(data)})
                tasks.append((where, data, _file(_image(data, own.image, where), existing), answers, chosen))
            except DataError:
                raise
            except (KeyError, TypeError, AttributeError, StopIteration, ValueError):  # ValueError: a faulty address
                raise DataError(f"{where} has no image or no answers; export the project as JSON, not as JSON-MIN") from None
    keys = sorted(key for key in others if not USUAL.fullmatch(plain(key)))
    ask_of_keys(", ".join(own.files or ()), keys, keys, own)
    names_of: dict[str, set[str]] = {}  # by control
    for control, name in frozenset().union(*(choices for *_, chosen in tasks for choices in chosen)):
        names_of.setdefault(control, set()).add(name)
    binary = {control for control, names in names_of.items() if all(name.casefold() in MARKS for name in names)}
    kept = _controls(names_of, binary, own.classes, tasks[0][0] if tasks else str(root))
    rows = []
    for where, data, image, answers, chosen in tasks:
        of_classes = [frozenset(choice for choice in choices if choice[0] in kept) for choices in chosen]
        choices = _counted(answers, of_classes, own.answers, where)
        signs = {control: name.casefold() not in NO for control, name in choices or () if control in binary}
        names = {name for control, name in choices or () if control not in binary} | {one for one in signs if signs[one]}
        whole = not kept <= binary or signs.keys() == kept  # each control of yes and no has an answer
        absent = None if choices is None or whole else frozenset(signs.keys() - names)
        split, group = ("" if data.get(key) is None else str(data[key]) for key in (own.split or "", own.group or ""))
        labels = None if choices is None else frozenset(names)
        rows.append(Row(image, labels, split_of(split, where), absent, group or None, where=where))
    way = "all answers count" if own.answers == "all" else "the ground truth, the newest or the last answer counts"
    differ = sum(len({*chosen}) > 1 for *_, chosen in tasks)
    notes = [f"tasks with answers that differ, where {way}: {differ}"] if differ else []
    return Listing(rows, {"export": ", ".join(own.files or ())}, notes)


def _controls(names_of: dict[str, set[str]], binary: set[str], classes: list[str] | None, where: str) -> set[str]:
    """The controls that hold classes (`own.classes`); a control of yes and no is itself a class. Raises Question if unclear."""
    if classes is not None:
        if lost := [control for control in classes if control not in names_of]:
            shown = ", ".join(sorted(names_of))
            raise DataError(f"{where}: no answer is of control {lost[0]!r} (found {shown}); correct own.classes")
        return {*classes}
    if len(names_of) > 1 or binary:
        named = sorted(names_of.keys() - binary, key=lambda control: (-len(names_of[control]), control))
        shown = "; ".join(f"{control}: {first_of(sorted(names), 3)}" for control, names in sorted(names_of.items()))
        text = f"{where}: which controls hold classes ({shown})? A control of yes and no is itself a class (own.classes)"
        raise Question(text, classes=named[:1] or sorted(binary))
    return {*names_of}


def _counted(answers: list[dict[str, Any]], chosen: list[Choices], way: str, task: str) -> Choices | None:
    """The choices that count for a task; None without answers. Raises Question if answers differ and none is preferred."""
    if len({*chosen}) < 2:
        return chosen[0] if chosen else None
    if way == "all":
        return frozenset().union(*chosen)
    times = [str(answer.get("updated_at") or answer.get("created_at") or "") for answer in answers]
    ranks = [(bool(answer.get("ground_truth")), time * all(times)) for answer, time in zip(answers, times, strict=True)]
    best = {choices for choices, rank in zip(chosen, ranks, strict=True) if rank == max(ranks)}
    if len(best) > 1 and way == "auto":
        text = f"{task}: {len(chosen)} answers that differ, without times: which one counts, or --answers all?"
        raise Question(text, answers="last")
    return best.pop() if len(best) == 1 else chosen[-1]


def _images(data: dict[str, Any]) -> dict[str, str]:
    """The addresses of a task's images, by their keys."""

    def is_image(text: str) -> bool:
        return is_image_name(unquote(urlsplit(text).query or urlsplit(text).path)) or is_image_name(text)

    return {key: text for key, text in data.items() if isinstance(text, str) and (key == "image" or is_image(text))}


def _image(data: dict[str, Any], key: str | None, where: str) -> str:
    """The address of a task's image. Raises Question if a task names several images and `key` is None."""
    if key is not None:
        return data[key]
    images = _images(data)
    if len({*images.values()}) > 1:
        first = "image" if "image" in images else next(iter(images))
        raise Question(f"{where} names several images ({', '.join(images)}): which was labelled (own.image)?", image=first)
    return next(iter(images.values()))


def _file(address: str, existing: set[str]) -> str:
    """The file that an address means; an uploaded file may exist without the letters that Label Studio puts before its name."""
    parts = urlsplit(address)
    name = parse_qs(parts.query).get("d", [unquote(parts.path)])[0]
    if not is_image_name(name):  # not every program escapes a `#`, `?` or `&` in a name
        name = address.partition("?d=")[2] or address
    upload = re.fullmatch("[0-9a-f]{8}-(.+)", Path(name).name)
    if upload is None or name.lstrip("/") in existing:
        return name
    if upload[0] not in existing:
        return upload[1]
    return upload[0] if "data/upload/" in name else name


def _choices(result: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """The control and the name of each choice; for another kind of answer, as a text or a rating, its value as the name."""
    for entry in result:
        value, kind = entry.get("value") or {}, str(entry.get("type") or "")
        names = [*_names({key: part for key, part in value.items() if key in ("choices", "taxonomy") or key.endswith("labels")})]
        if not names and not kind.endswith("labels") and kind not in (*SHAPES, "choices", "taxonomy"):
            names = [*filter(None, map(str, value.values()))]
        yield from ((str(entry.get("from_name") or kind), name) for name in names)


def _names(value: Any) -> Iterator[str]:
    """The texts in a value, at any depth."""
    if isinstance(value, str):
        yield value.strip()
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _names(part)
