"""Label Studio's export as JSON: choices, boxes, polygons and taxonomies become labels of the image."""

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

SHAPES = ("rectangle", "ellipse", "polygon", "keypoint", "brush", "")  # answers that say a place, and perhaps no class
Said = frozenset[tuple[str, str]]  # of an answer: (control, name) of all that was chosen


def is_export(path: Path) -> bool:
    """Whether a file is a list of tasks with images, perhaps one as JSON-MIN, which `read` refuses. Raises DataError: no JSON."""
    content = read_json(path)
    try:
        return isinstance(content, list) and bool(_images(content[0].get("data", content[0])))
    except (IndexError, TypeError, AttributeError, ValueError):
        return False


def read(root: Path, own: Own) -> Listing:
    """A task with an annotation is labelled (perhaps with nothing); one without, or only skipped, is truly unlabelled.

    Of several annotations of a task that differ, the ground truth counts, else the newest by its time; without times
    `own.answers` says which. Paths on the server are matched with the files below the folder by name, with or without the eight
    letters that an upload puts before it. Where a project has several controls `own.classes` names those that hold classes, and
    where its tasks name several images `own.image` the one that was looked at. `own.split` and `own.group` may be other keys of
    tasks.
    """
    here = {part for path in list_images(root, required=False) for part in (path, Path(path).name)}
    tasks: list[tuple[str, dict[str, Any], str, list[dict[str, Any]], list[Said]]] = []
    others: dict[str, None] = {}
    for path in (root / name for name in own.files or ()):
        for number, task in enumerate(read_json(path), 1):
            where = f"{path}: task {number}"
            try:
                answers = [a for a in task.get("annotations") or [] if not a.get("was_cancelled")]
                said = [frozenset(_choices(answer.get("result") or [])) for answer in answers]
                if any(not name for answer in said for _, name in answer):
                    raise DataError(f"{where}: an answer has a choice without a name; write its class, or take it out")
                data = task["data"]
                others |= dict.fromkeys(data.keys() - {own.image, *_images(data)})
                tasks.append((where, data, _file(_image(data, own.image, where), here), answers, said))
            except DataError:
                raise
            except (KeyError, TypeError, AttributeError, StopIteration, ValueError):  # the last: an address that is none
                raise DataError(f"{where} has no image or no answers; export the project as JSON, not as JSON-MIN") from None
    keys = sorted(key for key in others if not USUAL.fullmatch(plain(key)))
    ask_of_keys(", ".join(own.files or ()), keys, keys, own)
    choices: dict[str, set[str]] = {}
    for control, name in frozenset().union(*(one for *_, said in tasks for one in said)):
        choices.setdefault(control, set()).add(name)
    marked = {control for control, names in choices.items() if all(name.casefold() in MARKS for name in names)}
    kept = _controls(choices, marked, own.classes, tasks[0][0] if tasks else str(root))
    rows = []
    for where, data, image, answers, said in tasks:
        told = _chosen(answers, [frozenset(one for one in answer if one[0] in kept) for answer in said], own.answers, where)
        signs = {control: name.casefold() not in NO for control, name in told or () if control in marked}
        labels = {name for control, name in told or () if control not in marked} | {one for one in signs if signs[one]}
        whole = not kept <= marked or signs.keys() == kept  # of each control of yes and no there is an answer
        known = None if told is None or whole else frozenset(signs.keys() - labels)
        split, group = ("" if data.get(key) is None else str(data[key]) for key in (own.split or "", own.group or ""))
        told = None if told is None else frozenset(labels)
        rows.append(Row(image, told, split_of(split, where), known, group or None, where=where))
    word = "all" if own.answers == "all" else "the ground truth, the newest or the last"
    differ = sum(len({*said}) > 1 for *_, said in tasks)
    notes = [f"tasks with several answers that differ, of which {word} count: {differ}"] if differ else []
    return Listing(rows, {"export": ", ".join(own.files or ())}, notes)


def _controls(choices: dict[str, set[str]], marked: set[str], said: list[str] | None, where: str) -> set[str]:
    """The controls that hold classes; one of yes and no is a class of its own name. Raises Question where it is not plain."""
    if said is not None:
        if lost := [control for control in said if control not in choices]:
            raise DataError(f"{where}: no answer is of control {lost[0]!r} (found {', '.join(sorted(choices))}); see own.classes")
        return {*said}
    if len(choices) > 1 or marked:
        named = sorted(choices.keys() - marked, key=lambda control: (-len(choices[control]), control))
        shown = "; ".join(f"{control}: {first_of(sorted(names), 3)}" for control, names in sorted(choices.items()))
        text = f"{where}: which controls hold classes ({shown})? One of yes and no is a class of its own name (own.classes)"
        raise Question(text, classes=named[:1] or sorted(marked))
    return {*choices}


def _chosen(answers: list[dict[str, Any]], said: list[Said], way: str, task: str) -> Said | None:
    """What the answers of a task say. Raises Question where they differ and nothing tells which counts."""
    if len({*said}) < 2:
        return said[0] if said else None
    if way == "all":
        return frozenset().union(*said)
    true = {labels for answer, labels in zip(answers, said, strict=True) if answer.get("ground_truth")}
    times = [str(answer.get("updated_at") or answer.get("created_at") or "") for answer in answers]
    if len(true) == 1:
        return true.pop()
    if all(times) and times.count(max(times)) == 1:
        return said[times.index(max(times))]
    if way == "auto":
        text = f"{task}: {len(said)} answers that differ, and no times of them: which counts, or --answers all?"
        raise Question(text, answers="last")
    return said[-1]


def _images(data: dict[str, Any]) -> dict[str, str]:
    """The addresses of a task's images, by their keys."""

    def is_image(text: str) -> bool:
        return is_image_name(unquote(urlsplit(text).query or urlsplit(text).path)) or is_image_name(text)

    return {key: text for key, text in data.items() if isinstance(text, str) and (key == "image" or is_image(text))}


def _image(data: dict[str, Any], key: str | None, where: str) -> str:
    """The address of a task's image. Raises Question where several could be meant."""
    if key is not None:
        return data[key]
    images = _images(data)
    if len({*images.values()}) > 1:
        first = "image" if "image" in images else next(iter(images))
        raise Question(f"{where} names several images ({', '.join(images)}): which was labelled (own.image)?", image=first)
    return next(iter(images.values()))


def _file(address: str, here: set[str]) -> str:
    """The file of an address among those that are `here`: of an upload its name, perhaps without the letters before it."""
    parts = urlsplit(address)
    name = parse_qs(parts.query).get("d", [unquote(parts.path)])[0]
    if not is_image_name(name):  # a `#`, `?` or `&` of the name itself, which not every program escapes
        name = address.partition("?d=")[2] or address
    upload = re.fullmatch("[0-9a-f]{8}-(.+)", Path(name).name)
    if upload is None or name.lstrip("/") in here:
        return name
    if upload[0] not in here:
        return upload[1]
    return upload[0] if "data/upload/" in name else name


def _choices(result: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """The control and the name of each choice; of an answer of another kind, as a text or a rating, what it says."""
    for entry in result:
        value, kind = entry.get("value") or {}, str(entry.get("type") or "")
        names = [*_names({key: part for key, part in value.items() if key in ("choices", "taxonomy") or key.endswith("labels")})]
        if not names and not kind.endswith("labels") and kind not in (*SHAPES, "choices", "taxonomy"):
            names = [*filter(None, map(str, value.values()))]
        yield from ((str(entry.get("from_name") or kind), name) for name in names)


def _names(value: Any) -> Iterator[str]:
    """The texts in a value, however deep."""
    if isinstance(value, str):
        yield value.strip()
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _names(part)
