"""Inputs as people have them: what lies in a folder, and what its author meant, or the line that refuses it.

All are made of six photographs: a.png shows a cat and a dog, b.png a dog, c.png a cat, d.png nothing of it, e.png an owl;
f.png was never looked at. WRITE_ERRORS=1 python -m pytest tests/photos/test_awkward.py writes the list of docs/errors.md anew.
"""

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from PIL import Image

from dicap.data.sources.base import RawSet
from dicap.errors import DataError
from dicap.photos.readers.question import Question, joined
from dicap.photos.readers.read import look
from dicap.settings import Own

TRUTH: dict[str, set[str] | None] = {
    "a.png": {"cat", "dog"},
    "b.png": {"dog"},
    "c.png": {"cat"},
    "d.png": set(),
    "e.png": {"owl"},
    "f.png": None,
}
SINGLE: dict[str, set[str] | None] = {"b.png": {"dog"}, "c.png": {"cat"}, "e.png": {"owl"}}
PLAIN = "image,labels\na.png,cat;dog\nb.png,dog\nc.png,cat\nd.png,-\ne.png,owl\nf.png,\n"
LISTS = "image,labels\na.png,\"['cat', 'dog']\"\nb.png,['dog']\nc.png,['cat']\nd.png,-\ne.png,['owl']\nf.png,['']\n"
SPLIT = (
    "image,split,labels\na.png,train,cat;dog\nb.png,train,dog\nc.png,test,cat\nd.png,train,-\ne.png,test,owl\nf.png,unlabeled,\n"
)
SPLITS = {"a.png": "train", "b.png": "train", "c.png": "test", "d.png": "train", "e.png": "test", "f.png": "unlabeled"}


@dataclass(frozen=True)
class Awkward:
    """A folder of somebody's. Either `meant` (labels by last name of file) or `refused` (words of the one line) is said."""

    what: str
    make: Callable[[Path], object]
    meant: dict[str, set[str] | None] | None = None
    refused: str = ""
    splits: dict[str, str] = field(default_factory=dict)
    root: str = "."  # what is given as the folder, below the made one
    options: dict[str, Any] = field(default_factory=dict)
    unreadable: int = 0


def looked_at(place: Path, /, **said: Any) -> RawSet:
    """What `init-data` and then `convert` read; of labels without a test split three tenths are drawn."""
    return look(Path(place).resolve(), Own(**({"test_share": 0.3} | said)))[2]


def asked(place: Path, /, **said: Any) -> tuple[RawSet, int]:
    """What is read when a question, if there is one, is answered as it proposes; and how many there were."""
    try:
        return looked_at(place, **said), 0
    except Question as question:
        return looked_at(place, **joined(said, question.options)), 1


def refused(place: Path, words: str, options: dict[str, Any] | None = None, /, **said: Any) -> str:
    """The one line that refuses a folder: it has these words (a pattern), and if options are given proposes these ({}: none)."""
    with pytest.raises(Question if options else DataError, match=words) as caught:
        looked_at(place, **said)
    assert "\n" not in str(caught.value)
    assert options is None or getattr(caught.value, "options", {}) == options
    return str(caught.value)


def labels_of(raw: RawSet) -> dict[str, set[str] | None]:
    """{image: its labels}; None where it is not labelled."""
    return {item.id: None if item.labels is None else {raw.classes[c] for c in item.labels} for item in raw.items}


def picture(path: Path, seed: int = 0, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (8, 10, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path, **options)
    return path


def pictures(folder: Path, names=tuple(TRUTH)) -> None:
    for name in names:
        picture(folder / name, crc32(name.encode()))


def write(root: Path, rows: Iterable[Sequence[object]], name: str = "labels.csv") -> Path:
    """A table, and nothing else."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    with (root / name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    return root


def pictured(root: Path, rows: Sequence[Sequence[object]], name: str = "labels.csv") -> Path:
    """A table and the images that its rows name."""
    pictures(root, [row[0] for row in rows[1:]])
    return write(root, rows, name)


def table(content: str | bytes, name: str = "labels.csv", where: str = ".") -> Callable[[Path], object]:
    def make(root: Path) -> None:
        pictures(root / where)
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return make


def tree(*paths: str) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        for path in paths:
            picture(root / path, sum(path.rpartition("/")[2].encode()))

    return make


def coco(
    root: Path,
    name: str = "annotations/instances_train2017.json",
    folder: str = "train2017",
    names: Iterable[str] | dict[str, set[str]] = tuple(TRUTH)[:5],
    keep: bool = True,
    id_of: Callable[[int], object] = int,
    **changes: Any,
) -> None:
    """Images and their labels, or those with the labels they have in TRUTH; the images themselves only where they are kept."""
    shown = names if isinstance(names, dict) else {name: TRUTH[name] or set() for name in names}
    classes = sorted({"cat", "dog", "owl"}.union(*shown.values()))
    pictures(root / folder, shown if keep else ())
    content = {
        "images": [{"id": id_of(i), "file_name": file} for i, file in enumerate(shown)],
        "categories": [{"id": 10 + i, "name": name} for i, name in enumerate(classes)],
        "annotations": [
            {"id": 1, "image_id": id_of(i), "category_id": 10 + classes.index(label)}
            for i, labels in enumerate(shown.values())
            for label in sorted(labels)
        ],
    } | changes
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def download(root: Path) -> None:
    """As cocodataset.org gives it: instances, keypoints and captions of the same images."""
    coco(root)
    people = {"categories": [{"id": 1, "name": "person"}], "annotations": [{"image_id": 0, "category_id": 1, "id": 1}]}
    coco(root, "annotations/person_keypoints_train2017.json", **people)
    coco(root, "annotations/captions_train2017.json", categories=None, annotations=[{"image_id": 0, "caption": "a cat"}])


def linked(root: Path) -> None:
    download(root)
    elsewhere = root.parent / f"{root.name}-elsewhere"
    (root / "train2017").rename(elsewhere)
    (root / "train2017").symlink_to(elsewhere)


def thrice(root: Path) -> None:
    tree("dog/b.png", "cat/c.png", "owl/e.png")(root)
    (root / "cat" / "b.png").symlink_to(root / "dog" / "b.png")
    (root / "owl" / "b.png").write_bytes((root / "dog" / "b.png").read_bytes())


def with_files(make: Callable[[Path], object], files: dict[str, bytes]) -> Callable[[Path], object]:
    def both(root: Path) -> None:
        make(root)
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)

    return both


def label_studio(tasks: dict[str, Any], files=tuple(TRUTH)[:3]) -> Callable[[Path], object]:
    """An export: for each address its annotations, or with an answer alone, a task of JSON-MIN."""

    def make(root: Path) -> None:
        pictures(root, files)
        content = [
            {"data": {"image": address}, "annotations": answer}
            if isinstance(answer, list)
            else {"image": address, "choice": answer}
            for address, answer in tasks.items()
        ]
        (root / "export.json").write_text(json.dumps(content))

    return make


def choice(*names: str, **facts: Any) -> dict[str, Any]:
    return {"result": [{"value": {"choices": [name]}} for name in names]} | facts


def voc(**filenames: str) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        for stem, name in filenames.items():
            picture(root / f"{stem}.png", ord(stem[0]))
            node = "<object><name>cat</name><part><name>ear</name></part></object>"
            text = f"<annotation><filename>{name}</filename>{node}</annotation>"
            (root / f"{stem}.xml").write_text(text)

    return make


def in_splits(root: Path) -> None:
    for split, stem in zip(SPLITS.values(), "abcde", strict=False):
        (root / split).mkdir(exist_ok=True)
        voc(**{stem: f"{stem}.png"})(root / split)


def cvat(*subsets: str) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        pictures(root)
        images = [f'<image name="{n}" subset="{s}"><tag label="cat"/></image>' for n, s in zip(TRUTH, subsets, strict=False)]
        (root / "annotations.xml").write_text(f"<annotations>{''.join(images)}</annotations>")

    return make


VOC = b"<annotation><filename>%s</filename><object><name>cat</name></object></annotation>"
SINGLE_STUDIO = {"a.png": {"cat"}, "b.png": {"dog"}, "c.png": {"owl"}}
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40)
# Four rows without a test split are enough: one is drawn where none is said.
ONE_HOT = "filename,cat,dog,owl\na.png,1,True,0\nb.png,0,1,0\nc.png,1,0,FALSE\nd.png,0,0,0\ne.png,0,0,1\nf.png,,,\n"
LONG = "image,label\na.png,cat\na.png,dog\nb.png,dog\nb.png,owl\nc.png,cat\n"
PETS = tree("pets/dog/b.png", "pets/cat/c.png", "wild/owl/e.png")
LABELLED = {name: labels for name, labels in TRUTH.items() if labels is not None}
LABELLED_SPLITS = {name: SPLITS[name] for name in LABELLED}
DRAWN = [choice("cat")]

TABLES = [
    Awkward("no column of splits", table(PLAIN), TRUTH),
    Awkward("no split of test", table(PLAIN), refused="set own.test_share, for example to 0.2", options={"test_share": 0.0}),
    Awkward(
        "not UTF-8, as some spreadsheets save it", table(PLAIN.replace("owl", "käuzchen").encode("cp1252")), refused="not UTF-8"
    ),
    Awkward("no column of labels", table("image,split\na.png,train\n"), refused="column labels is missing (found image, split)"),
    Awkward(
        "no labels at all", table(SPLIT.replace("cat", "").replace("dog", "").replace("owl", "")), refused="none of 6 images"
    ),
    Awkward("a row for each label", table(LONG), refused="init-data --rows label"),
    Awkward(
        "empty cells in most rows of split train",
        table(SPLIT.replace("a.png,train,cat;dog", "a.png,train,").replace("c.png,test,cat", "c.png,test,").replace(",-", ",")),
        refused="none of the classes (--empty none), or not labelled?",
    ),
    Awkward(
        "the same, beside a row that says `-`",
        table(SPLIT.replace("b.png,train,dog", "b.png,train,")),
        refused="1 of 5 images have no label (the first: b.png)",
    ),
    Awkward("columns without head and content at the margin", table(PLAIN.replace("\n", ",,\n")), TRUTH),
    Awkward("a row that is cut short", table(SPLIT.replace("c.png,test,cat", "c.png")), refused="1 cells, the header has 3"),
    Awkward("no heads", table(PLAIN.partition("\n")[2]), refused="line 1 has no heads"),
    Awkward("a spreadsheet", table(b"PK\x03\x04", "labels.xlsx"), refused="a spreadsheet; save it as CSV", root="labels.xlsx"),
    Awkward(
        "two tables",
        with_files(table(PLAIN, "a.csv"), {"b.csv": PLAIN.encode()}),
        refused="could be in a.csv (table), b.csv (table); --files names those to read",
    ),
    Awkward(
        "a table for each split in its folder",
        with_files(
            tree("train/a.png", "train/b.png", "test/c.png"),
            {
                "train/_classes.csv": b"filename, cat, dog\na.png,1,1\nb.png,0,1\n",
                "test/_classes.csv": b"filename, cat\nc.png,1\n",
            },
        ),
        {"a.png": {"cat", "dog"}, "b.png": {"dog"}, "c.png": {"cat"}},
        splits={"a.png": "train", "b.png": "train", "c.png": "test"},
    ),
]

PLACES = [
    Awkward("absolute paths of another machine", table(PLAIN.replace("\n", "\nC:\\set\\", 6)), TRUTH),
    Awkward("a path out of the folder", table(PLAIN.replace("a.png", "../a.png")), refused="leaves the folder"),
    Awkward("a missing photograph", table(PLAIN + "g.png,cat\n"), TRUTH | {"g.png": {"cat"}}, unreadable=1),
]

FOLDERS = [
    Awkward("two folders that could be the label", PETS, refused="which folder is the label, 'pets' or 'cat'? If one is, say"),
    Awkward(
        "two folders that could be the label, with the answer all",
        PETS,
        {"b.png": {"pets", "dog"}, "c.png": {"pets", "cat"}, "e.png": {"wild", "owl"}},
        options={"label_folder": "all"},
    ),
    Awkward(
        "one label and a deep folder of unlabelled images",
        tree("dog/b.png", "cat/c.png", "owl/e.png", "unlabeled/2024/holiday/f.png"),
        SINGLE | {"f.png": None},
        splits={"f.png": "unlabeled"},
    ),
    *[
        Awkward(f"a folder {name!r}", tree(f"{name}/b.png", "cat/c.png"), refused="rename it")
        for name in ("salt;pepper", "a\nb", "caf\udce9")
    ],
    Awkward(
        "a photograph in train and in test",
        lambda root: [tree("train/dog/b.png", "train/cat/c.png", "test/owl/e.png")(root), tree("test/dog/b.png")(root)],
        meant=SINGLE,
        splits={"b.png": "test", "c.png": "train", "e.png": "test"},
    ),
    Awkward("a photograph in three folders: a file, a link and a copy", thrice, SINGLE | {"b.png": {"cat", "dog", "owl"}}),
    Awkward("photographs alone", pictures, refused="no labels yet; choose the first to label: dicap-stage suggest"),
]

ANNOTATIONS = [
    Awkward("COCO as it is downloaded", download, LABELLED),
    Awkward(
        "COCO of which one split was downloaded",
        lambda root: [
            download(root),
            coco(root, "annotations/instances_val2017.json", "val2017", (), images=[{"id": 50, "file_name": "1.jpg"}]),
        ],
        LABELLED,
    ),
    Awkward("COCO without its images", lambda root: coco(root, keep=False), refused="none of its 5 images is here"),
    Awkward(
        "COCO images that nobody annotated",
        lambda root: [
            coco(root),
            coco(root, "annotations/image_info_unlabeled2017.json", "unlabeled2017", ("f.png",), annotations=None, id_of=str),
            picture(root / "unlabeled2017" / "f.png", 9),
        ],
        TRUTH,
        splits={"f.png": "unlabeled"},
    ),
    Awkward("JSON without an end", with_files(pictures, {"a.json": b"[" * 9999}), refused="readable as JSON (nested too deep"),
    Awkward(
        "COCO with a name that is none of a file",
        lambda root: coco(root, images=[{"id": 0, "file_name": "a\0.png"}], annotations=[]),
        refused="'a\\x00.png' cannot be the name of a file",
    ),
    Awkward(
        "Label Studio, with an answer that was replaced and one that was skipped",
        label_studio(
            {
                "/data/upload/1/abcdef12-a.png": [choice("owl"), choice("cat", "dog"), choice(was_cancelled=True)],
                "/data/local-files/?d=x%2Fimages%2Fb.png": [choice("dog")],
                "/data/upload/1/abcdef12-c.png": DRAWN,
                "f.png": [],
            },
            ("images/a.png", "images/b.png", "images/abcdef12-c.png", "images/f.png"),
        ),
        {"a.png": {"cat", "dog"}, "b.png": {"dog"}, "abcdef12-c.png": {"cat"}, "f.png": None},
        options={"answers": "last"},
    ),
    *[
        Awkward(
            f"Label Studio, with two answers{what}",
            label_studio(
                {"a.png": [choice("cat", **one), choice("owl", **other)], "b.png": [choice("dog")], "c.png": [choice("owl")]}
            ),
            meant,
            refused,
            options=options,
        )
        for what, one, other, meant, refused, options in (
            ("", {}, {}, None, "2 answers that differ", {}),
            (" of which the first is newer", {"updated_at": "2025-02-01"}, {"updated_at": "2025-01-31"}, SINGLE_STUDIO, "", {}),
            (" of which one is the ground truth", {"ground_truth": True}, {"updated_at": "2025-01-31"}, SINGLE_STUDIO, "", {}),
            (" that both count", {}, {}, SINGLE_STUDIO | {"a.png": {"cat", "owl"}}, "", {"answers": "all"}),
        )
    ],
    Awkward(
        "Label Studio with names that an address would end early, and a lost photograph",
        label_studio(
            {"a#1.png": DRAWN, "b?.png": DRAWN, "c.png": DRAWN, "D-2.png": DRAWN},
            ("a.png", "a#1.png", "b.png", "b?.png", "c.png", "2.png"),
        ),
        {key: {"cat"} for key in ("a#1.png", "b?.png", "c.png", "D-2.png")} | dict.fromkeys(("a.png", "b.png", "2.png")),
        unreadable=1,
    ),
    Awkward("Label Studio's JSON-MIN", label_studio({"a.png": "cat", "b.png": "dog"}), refused="no labels in a known form"),
    Awkward("Pascal VOC in folders of train and test", in_splits, {name: {"cat"} for name in LABELLED}, splits=LABELLED_SPLITS),
    Awkward(
        "Pascal VOC with a path of another machine",
        with_files(
            tree("JPEGImages/a.png", "JPEGImages/b.png", "JPEGImages/c.png"),
            {"xml/a.xml": VOC % b"a.png", "xml/b.xml": VOC % b"C:\\x\\b.png", "xml/c.xml": VOC % b"/srv/x/c.png"},
        ),
        {"a.png": {"cat"}, "b.png": {"cat"}, "c.png": {"cat"}},
    ),
    Awkward("Pascal VOC by the name of another photograph", voc(a="b.png", b="b.png"), refused="<filename> is 'b.png'"),
    Awkward(
        "XML that was cut short", lambda root: (root / "a.xml").write_text("<annotation><object>"), refused="readable as XML"
    ),
    Awkward("CVAT with a misspelt subset", cvat("Train", "Train", "tset"), refused="split: found 'tset'"),
]

GROUPS = {
    "Tables": TABLES,
    "Where the photographs are": PLACES,
    "Folders": FOLDERS,
    "Annotations": ANNOTATIONS,
}
CASES = [case for group in GROUPS.values() for case in group]

SAME = {  # other ways of writing the same table, which mean the same
    "rows twice": lambda text: text + "b.png,dog\n",
    "names without endings": lambda text: text.replace(".png", ""),
    "capitals that differ": lambda text: text.replace("a.png", "A.PNG"),
    "lists as Python writes them": lambda text: LISTS.replace("f.png,['']", "f.png,"),
    "empty lists": lambda text: LISTS.replace("d.png,-", "d.png,[]"),
    "columns for each class": lambda text: ONE_HOT,
    "labels of split unlabeled": lambda text: SPLIT.replace("unlabeled,", "unlabeled,owl"),
    "cells of splits that are empty": lambda text: SPLIT.replace("b.png,train", "b.png,").replace("f.png,unlabeled", "f.png,"),
}
TWICE = [{"id": 0, "file_name": name} for name in ("a.png", "b.png")]
BROKEN = {  # what is there, and the words of the one line
    "column cat occurs twice": table("image,cat,cat\na.png,1,0\n"),
    "column cat is '2'": table(ONE_HOT.replace("c.png,1", "c.png,2")),
    "`-` means none of the classes, so": table(PLAIN.replace("cat;dog", "cat;-")),
    "labels: is '[cat dog]' the name of one class? Write names alone": table(PLAIN.replace("cat;dog", "[cat dog]")),
    "line 1 names the separator": table("sep=;\n" + PLAIN),
    "line 3: repeats the heads": table(PLAIN.replace("b.png,dog", "image,labels")),
    "group: 'NA' would make one group of all rows that have it": table(ONE_HOT.replace("owl", "group").replace(",0\n", ",NA\n")),
    "not readable": table(b"PAR1 no", "labels.parquet"),
    "which of image (a.png, b.png), path (b.png, a.png) holds the images? --image names": table(
        "image,path,labels\na.png,b.png,cat\nb.png,a.png,dog\n"
    ),
    "column usage": table(SPLIT.replace("split", "usage")),
    "refers to 99": lambda root: coco(root, annotations=[{"image_id": 0, "category_id": 99}]),
    "two images have the same id": lambda root: coco(root, images=TWICE),
    "all labelled images (4) are copies of one photograph": lambda root: [
        picture(root / "cd"[i % 2] / f"{i}.png") for i in range(4)
    ],
    "none of 0": lambda root: coco(root, images=[], annotations=[]),
    "has no image or no answers": label_studio({"a.png": [{"result": "cat"}]}),
    "task 2: class '': no name may be empty": label_studio({"a.png": [choice("cat")], "b.png": [choice("")]}),
    "a document type": lambda root: (root / "a.xml").write_text("<!DOCTYPE a []><a/>"),
    "found a.xml, but no photographs": lambda root: (root / "a.xml").write_text("<html/>"),
}
