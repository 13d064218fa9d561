"""Inputs as people have them: what lies in a folder, and what its author meant, or the line that refuses it.

All are made of six photographs: a.png shows a cat and a dog, b.png a dog, c.png a cat, d.png nothing of it, e.png an owl;
f.png was never looked at. WRITE_ERRORS=1 python -m pytest tests/data/test_awkward.py writes the list of docs/errors.md anew.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

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


def picture(path: Path, seed: int = 0, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (8, 10, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path, **options)
    return path


def pictures(folder: Path, names=tuple(TRUTH)) -> None:
    for i, name in enumerate(names):
        picture(folder / name, i)


def table(content: str | bytes, name: str = "labels.csv", where: str = ".") -> Callable[[Path], object]:
    def make(root: Path) -> None:
        pictures(root / where)
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return make


def parquet(frame: dict[str, list]) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        pictures(root)
        pd.DataFrame(frame).to_parquet(root / "labels.parquet")

    return make


def tree(*paths: str, also: Callable[[Path], object] | None = None) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        for path in paths:
            picture(root / path, sum(path.rpartition("/")[2].encode()))
        if also is not None:
            also(root)

    return make


def coco(
    root: Path,
    name: str = "annotations/instances_train2017.json",
    images: str = "train2017",
    names=tuple(TRUTH)[:5],
    keep: bool = True,
    first: int = 0,
    **changes: Any,
) -> None:
    classes = ["cat", "dog", "owl"]
    pictures(root / images, names if keep else ())
    content = {
        "images": [{"id": first + i, "file_name": file} for i, file in enumerate(names)],
        "categories": [{"id": 10 + i, "name": name} for i, name in enumerate(classes)],
        "annotations": [
            {"id": 1, "image_id": first + i, "category_id": 10 + classes.index(label)}
            for i, file in enumerate(names)
            for label in sorted(TRUTH[file] or ())
        ],
    } | changes
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def verified(root: Path, images: int) -> None:
    """The first images are said to show no owl; e.png, the fifth, shows one."""
    coco(root)
    path = root / "annotations/instances_train2017.json"
    content = json.loads(path.read_text())
    for image in content["images"][:images]:
        image["neg_category_ids"] = [12]
    path.write_text(json.dumps(content))


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


def with_files(make: Callable[[Path], object], files: dict[str, bytes]) -> Callable[[Path], object]:
    def both(root: Path) -> None:
        make(root)
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)

    return both


HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40)
# Four rows without a test split are enough: one is drawn where none is said.
ONE_HOT = "filename,cat,dog,owl\na.png,1,1,0\nb.png,0,1,0\nc.png,1,0,0\nd.png,0,0,0\ne.png,0,0,1\nf.png,,,\n"
# All that is known of the six: of b.png that it shows no owl, of d.png that it shows no cat ...
ABSENT = "image,labels,absent\na.png,cat;dog,*\nb.png,dog,owl\nc.png,cat,dog\nd.png,,cat\ne.png,owl,-\nf.png,,\n"
LONG = "image,label\na.png,cat\na.png,dog\nb.png,dog\nb.png,owl\nc.png,cat\n"

TABLES = [
    Awkward("no column of splits", table(PLAIN), TRUTH),
    Awkward(
        "semicolons between columns, commas never",
        table(PLAIN.replace(";", "+").replace(",", ";").replace("+", "|").replace("cat|dog", '"cat;dog"')),
        TRUTH,
    ),
    Awkward("tabs between columns", table(PLAIN.replace(",", "\t"), "labels.csv"), TRUTH),
    Awkward("vertical bars between columns", table(PLAIN.replace(",", "|")), TRUTH),
    Awkward(
        "the line `sep=;` of a spreadsheet",
        table("sep=;\r\n" + PLAIN.replace(";", "+").replace(",", ";").replace("cat+dog", '"cat;dog"')),
        TRUTH,
    ),
    Awkward("UTF-16, as a spreadsheet saves Unicode text", table(PLAIN.replace(",", "\t").encode("utf-16")), TRUTH),
    Awkward("UTF-8 with a byte order mark and CRLF", table(("\ufeff" + PLAIN).replace("\n", "\r\n")), TRUTH),
    Awkward("Windows-1252", table(PLAIN.replace("owl", "käuzchen").encode("cp1252")), TRUTH | {"e.png": {"käuzchen"}}),
    Awkward("Cyrillic in Windows-1251", table(PLAIN.replace("owl", "сова").encode("cp1251")), refused="save the table as UTF-8"),
    Awkward("Mac Roman", table(PLAIN.replace("owl", "käuzchen").encode("mac-roman")), refused="save the table as UTF-8"),
    Awkward("UTF-16 without a byte order mark", table(PLAIN.encode("utf-16-le")), refused="looks like UTF-16"),
    Awkward(
        "heads with capitals and blanks", table(SPLIT.replace("image,split,labels", "Image ,Split, LABELS")), TRUTH, splits=SPLITS
    ),
    Awkward(
        "other words for the heads", table(SPLIT.replace("image,split,labels", "File Name,Subset,Tags")), TRUTH, splits=SPLITS
    ),
    Awkward(
        "empty cells of splits",
        table(SPLIT.replace("b.png,train", "b.png,").replace("f.png,unlabeled", "f.png,")),
        TRUTH,
        splits=SPLITS,
    ),
    Awkward(
        "other words for the splits",
        table(SPLIT.replace(",train,", ",Training,").replace(",test,", ",VALID,")),
        TRUTH,
        splits=SPLITS,
    ),
    Awkward(
        "a misspelt split", table(SPLIT.replace(",test,", ",tset,")), refused="split: found 'tset', allowed are train, val, test"
    ),
    Awkward("rows that stand there twice", table(PLAIN + "b.png,dog\n"), TRUTH),
    Awkward("an image with two answers", table(PLAIN + "b.png,cat\n"), refused="'b.png' stands on line 3 already"),
    Awkward("an image in train and in test", table(SPLIT + "b.png,test,dog\n"), refused="give it one split"),
    Awkward("a row for each label", table(LONG), {"a.png": {"cat", "dog"}, "b.png": {"dog", "owl"}, "c.png": {"cat"}}),
    Awkward("a column of absent classes", table(ABSENT), TRUTH | {"d.png": set(), "f.png": None}),
    Awkward(
        "a column of absent classes that is empty", table(PLAIN.replace("\n", ",\n").replace("labels,", "labels,absent")), TRUTH
    ),
    Awkward(
        "most cells of the column of absent classes empty",
        table(ABSENT.replace("dog,owl\n", "dog,\n").replace("cat,dog\n", "cat,\n").replace("owl,-\n", "owl,\n")),
        refused="absent: empty, as in 3 of 5 labelled rows",
    ),
    Awkward(
        "a class that is there and absent",
        table(ABSENT.replace("b.png,dog,owl", "b.png,dog,owl;dog")),
        refused="line 3: absent: 'dog' is among the labels of this row too",
    ),
    Awkward(
        "a column `absent` of something else",
        table(ABSENT.replace("dog,owl\n", "dog,no\n").replace("cat,dog\n", "cat,yes\n").replace(",,cat\n", ",,no\n")),
        refused="column absent: 'no' is no label of any row",
    ),
    Awkward("a column for each class", table(ONE_HOT), TRUTH),
    Awkward("a column for each class, true and false", table(ONE_HOT.replace(",1", ",True").replace(",0", ",FALSE")), TRUTH),
    Awkward(
        "ticks in the columns of classes",
        table("image,cat,dog\na.png,x,x\nb.png,,x\nc.png,x,\nd.png,,\n"),
        {"a.png": {"cat", "dog"}, "b.png": {"dog"}, "c.png": {"cat"}, "d.png": set()},
    ),
    Awkward(
        "a column of a class with another number",
        table(ONE_HOT.replace("c.png,1", "c.png,2")),
        refused="column cat is '2'; write 0 or 1",
    ),
    Awkward(
        "a half empty row of 0 and 1", table(ONE_HOT.replace("c.png,1", "c.png,")), refused="column cat is empty; write 0 or 1"
    ),
    Awkward(
        "a comma between labels in quotes",
        table(PLAIN.replace("cat;dog", '"cat, dog"')),
        refused="is 'cat, dog' one class or several?",
    ),
    Awkward(
        "the same, with the answer several", table(PLAIN.replace("cat;dog", '"cat, dog"')), TRUTH, options={"separator": ","}
    ),
    Awkward(
        "the same, with the answer one",
        table(PLAIN.replace("cat;dog", '"cat, dog"')),
        TRUTH | {"a.png": {"cat, dog"}},
        options={"separator": ";"},
    ),
    Awkward(
        "commas in names beside semicolons between them",
        table(PLAIN.replace("owl", '"owl, barn;cat"')),
        TRUTH | {"e.png": {"owl, barn", "cat"}},
    ),
    Awkward(
        "a blank between labels",
        table("image,labels\na.png,cat dog\nb.png,dog owl\nc.png,owl cat\ne.png,owl\n"),
        refused="is 'cat dog' one class or several?",
    ),
    Awkward(
        "names of two words",
        table("image,labels\na.png,hot dog\nb.png,teddy bear\nc.png,traffic light\ne.png,dog\n"),
        {"a.png": {"hot dog"}, "b.png": {"teddy bear"}, "c.png": {"traffic light"}, "e.png": {"dog"}},
    ),
    Awkward("lists as Python writes them", table(PLAIN.replace("cat;dog", "\"['cat', 'dog']\"")), TRUTH),
    Awkward("lists as JSON writes them", table(PLAIN.replace("cat;dog", '"[""cat"", ""dog""]"')), TRUTH),
    Awkward(
        "an array as NumPy prints it",
        table(PLAIN.replace("cat;dog", "['cat' 'dog']")),
        refused="is a printed array; write the names with `;` between",
    ),
    Awkward(
        "empty cells in most rows of split train",
        table(SPLIT.replace("a.png,train,cat;dog", "a.png,train,").replace("c.png,test,cat", "c.png,test,").replace(",-", ",")),
        refused="none of the classes, or not labelled? Set own.empty",
    ),
    Awkward("an empty cell in a row of split train", table(SPLIT.replace("d.png,train,-", "d.png,train,")), TRUTH, splits=SPLITS),
    Awkward(
        "the same, beside a row that says `-`",
        table(SPLIT.replace("b.png,train,dog", "b.png,train,")),
        TRUTH | {"b.png": None},
        splits=SPLITS | {"b.png": "unlabeled"},
    ),
    Awkward("columns without head and content at the margin", table(PLAIN.replace("\n", ",,\n")), TRUTH),
    Awkward(
        "a row that is cut short",
        table(SPLIT.replace("c.png,test,cat", "c.png")),
        refused="1 cells, the header has 3; write one cell for each column",
    ),
    Awkward("no heads", table(PLAIN.partition("\n")[2]), refused="line 1 has no heads; write `image,labels`"),
    Awkward("a spreadsheet", table(b"PK\x03\x04", "labels.xlsx"), refused="a spreadsheet; save it as CSV", root="labels.xlsx"),
    Awkward(
        "two columns that could be the labels",
        table(PLAIN.replace("image,labels", "image,label").replace("\n", ",x\n").replace("label,x", "label,category")),
        refused="columns label and category could be the labels",
    ),
    Awkward(
        "two tables",
        with_files(table(PLAIN, "one.csv"), {"two.csv": PLAIN.encode()}),
        refused="several tables could be meant (one.csv, two.csv)",
    ),
    Awkward("a table by another name", table(PLAIN, "annotations final.csv"), TRUTH),
    Awkward(
        "a table for each split in its folder",
        lambda root: (
            [
                table("filename, cat, dog\na.png,1,1\nb.png,0,1\n", "train/_classes.csv", "train")(root),
                table("filename, cat, dog\nc.png,1,0\n", "test/_classes.csv", "test")(root),
            ]
            and [(root / "train" / name).unlink() for name in ("c.png", "d.png", "e.png", "f.png")]
            + [(root / "test" / name).unlink() for name in ("a.png", "b.png", "d.png", "e.png", "f.png")]
        ),
        {"a.png": {"cat", "dog"}, "b.png": {"dog"}, "c.png": {"cat"}},
        splits={"a.png": "train", "b.png": "train", "c.png": "test"},
    ),
    Awkward(
        "lists in Parquet",
        parquet({"image": list(TRUTH), "labels": [None if v is None else sorted(v) for v in TRUTH.values()]}),
        TRUTH,
    ),
]

PLACES = [
    Awkward("images in a folder that the table does not name", table(PLAIN, where="photos"), TRUTH),
    Awkward(
        "absolute paths of another machine",
        table(PLAIN.replace("\n", "\nC:\\set\\", 6)),
        TRUTH,
    ),
    Awkward("names without an ending", table(PLAIN.replace(".png", "")), TRUTH),
    Awkward("capitals that differ", table(PLAIN.replace("a.png", "A.PNG")), TRUTH),
    Awkward(
        "addresses of the web",
        table(PLAIN.replace("a.png", "https://example.org/x/zz.png")),
        refused="is an address; download the images",
    ),
    Awkward("a path out of the folder", table(PLAIN.replace("a.png", "../a.png")), refused="leaves the folder of the table"),
    Awkward("a missing photograph", with_files(table(PLAIN + "g.png,cat\n"), {}), TRUTH | {"g.png": {"cat"}}, unreadable=1),
]

FOLDERS = [
    Awkward(
        "folders of dates above those of labels", tree("2024/05/dog/b.png", "2024/06/cat/c.png", "2023/12/owl/e.png"), SINGLE
    ),
    Awkward("folders of dates below those of labels", tree("dog/2024-05-01/b.png", "cat/c.png", "owl/100CANON/e.png"), SINGLE),
    Awkward(
        "a folder around everything", tree("photographs/dog/b.png", "photographs/cat/c.png", "photographs/owl/e.png"), SINGLE
    ),
    Awkward(
        "splits below the labels",
        tree("dog/train/b.png", "dog/test/g.png", "cat/train/c.png", "owl/train/e.png"),
        SINGLE | {"g.png": {"dog"}},
        splits={"b.png": "train", "g.png": "test"},
    ),
    Awkward("digits as labels", tree("0/b.png", "1/c.png", "2/e.png"), {"b.png": {"0"}, "c.png": {"1"}, "e.png": {"2"}}),
    Awkward(
        "two folders that could be the label",
        tree("pets/dog/b.png", "pets/cat/c.png", "wild/owl/e.png"),
        refused="which folder is the label, 'pets' or 'cat'? Set own.label_folder",
    ),
    Awkward(
        "the same, with the answer last",
        tree("pets/dog/b.png", "pets/cat/c.png", "wild/owl/e.png"),
        SINGLE,
        options={"label_folder": "last"},
    ),
    Awkward(
        "the same, with the answer all",
        tree("pets/dog/b.png", "pets/cat/c.png", "wild/owl/e.png"),
        {"b.png": {"pets", "dog"}, "c.png": {"pets", "cat"}, "e.png": {"wild", "owl"}},
        options={"label_folder": "all"},
    ),
    Awkward("nothing but dates", tree("2024/05/b.png", "2023/06/c.png"), refused="which folder is the label"),
    Awkward(
        "one label and a deep folder of unlabelled images",
        tree("dog/b.png", "cat/c.png", "owl/e.png", "unlabeled/2024/holiday/f.png"),
        SINGLE | {"f.png": None},
        splits={"f.png": "unlabeled"},
    ),
]

ANNOTATIONS = [
    Awkward("COCO as it is downloaded", download, {name: TRUTH[name] for name in tuple(TRUTH)[:5]}),
    Awkward(
        "COCO by one of its files",
        download,
        {name: TRUTH[name] for name in tuple(TRUTH)[:5]},
        root="annotations/instances_train2017.json",
    ),
    Awkward("COCO with its images behind a link", linked, {name: TRUTH[name] for name in tuple(TRUTH)[:5]}),
    Awkward(
        "COCO of which one split was downloaded",
        lambda root: (
            [download(root), coco(root, "annotations/instances_val2017.json", "val2017", ("e.png",), keep=False, first=50)]
            and (root / "annotations/instances_val2017.json").write_text(
                (root / "annotations/instances_val2017.json").read_text().replace("e.png", "000000000139.jpg")
            )
        ),
        {name: TRUTH[name] for name in tuple(TRUTH)[:5]},
    ),
    Awkward("COCO without its images", lambda root: coco(root, keep=False), refused="none of its 5 images is below"),
    Awkward(
        "COCO files that list the same image twice",
        lambda root: [coco(root, "first.json", "."), coco(root, "second.json", ".")],
        refused="is listed in first.json already; set data_root to one of the two files",
    ),
    Awkward(
        "COCO images that nobody annotated",
        lambda root: [
            coco(root),
            coco(root, "annotations/image_info_unlabeled2017.json", "unlabeled2017", ("f.png",), annotations=None, first=100),
        ],
        TRUTH,
        splits={"f.png": "unlabeled"},
    ),
    Awkward(
        "COCO whose images say which categories they do not show",
        lambda root: verified(root, 4),
        {name: labels for name, labels in TRUTH.items() if labels is not None},
    ),
    Awkward(
        "COCO with a category that is annotated and verified not to be there",
        lambda root: verified(root, 5),
        refused="'owl' is annotated and in neg_category_ids",
    ),
    Awkward(
        "COCO with an annotation of no category",
        lambda root: coco(root, annotations=[{"image_id": 0, "category_id": 99}]),
        refused="refers to 99, which the file does not have",
    ),
]

PHOTOGRAPHS = [
    Awkward(
        "a telephone's HEIC by the name of a JPEG",
        with_files(tree("dog/b.png", "cat/c.png", "owl/e.png"), {"dog/g.jpg": HEIC}),
        SINGLE | {"g.jpg": {"dog"}},
        unreadable=1,
    ),
    Awkward(
        "AVIF",
        lambda root: [tree("dog/b.png", "cat/c.png", "owl/e.png")(root), picture(root / "dog" / "g.avif", 9)],
        SINGLE | {"g.avif": {"dog"}},
    ),
    Awkward(
        "photographs of no kind that is read, alone",
        with_files(lambda root: None, {"dog/a.cr2": b"x", "cat/b.nef": b"x"}),
        refused="no image files below it",
    ),
    Awkward(
        "a web page saved as a photograph",
        with_files(tree("dog/b.png", "cat/c.png", "owl/e.png"), {"dog/g.jpg": b"<!doctype html>"}),
        SINGLE | {"g.jpg": {"dog"}},
        unreadable=1,
    ),
]

GROUPS = {
    "Tables": TABLES,
    "Where the photographs are": PLACES,
    "Folders": FOLDERS,
    "COCO": ANNOTATIONS,
    "Photographs": PHOTOGRAPHS,
}
CASES = [case for group in GROUPS.values() for case in group]
