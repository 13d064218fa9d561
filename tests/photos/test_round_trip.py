"""Drawn sets of labelled images with any names, in every format, order and encoding: read back the same, or refused in one line.

Files are told apart by their inode, so that no image can have the labels of another under a name that looks alike.
"""

import csv
import io
import json
import os
import shutil
import tempfile
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree as Xml

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from PIL import Image

from dicap.data.sources import read_raw
from dicap.data.sources.files import readable
from dicap.errors import DataError
from dicap.photos.readers import imported
from dicap.photos.readers import read as own
from dicap.photos.readers.understand import understand
from dicap.photos.survey import survey
from dicap.settings import Own
from dicap.settings.catalogue import FORMATS
from photos.awkward import coco, labels_of, looked_at, write
from stages.photos.import_labels import table_of

# Letters that mean something to tables, lists, paths, addresses, XML or spreadsheets; an accent in both forms; capitals.
LETTERS = "abA ä\u0308é猫()[]{}'\"`,;|-_=+@#%&<>\\.*!0"
WORDS = (
    *("nan", "NaN", "None", "null", "-", "- -", "train", "test", "unlabeled", "image", "labels", "0", "1", "x", "true", "sep=;"),
    *("red car", "blue car", "red bus", "[a]", "['a', 'b']", "(other)", "a, b", "a|b", "salt;pepper", "*"),
    *("Ka\u0308uzchen", "Käuzchen"),
)
TEXT = st.one_of(st.sampled_from(WORDS), st.text(st.sampled_from(LETTERS), min_size=1, max_size=6)).map(str.strip).filter(bool)
STEMS = st.one_of(TEXT, st.sampled_from(["1", "2", "IMG_1", "abcdef12-1", "\udce9t\udce9"]))
FOLDERS = st.sampled_from(["", "a", "b", "a/b", "A", "é", "e\u0301", "my folder"])


def png(shade: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (2, 2), (20 * shade,) * 3).save(content, "PNG")
    return content.getvalue()


PICTURES = [png(shade) for shade in range(12)]


@dataclass
class Drawn:
    """Labels of images by path: None where unlabelled. Those in `lost` are listed and not there."""

    labels: dict[str, set[str] | None]
    lost: set[str]
    encoding: str
    separator: str
    as_lists: bool
    split: bool

    def place(self, folder: Path) -> None:
        for shade, path in enumerate(self.labels):
            if path not in self.lost:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(PICTURES[shade])

    def listed(self):
        """(path, labels) of images whose name is text, the unlabelled ones included."""
        return [(path, labels) for path, labels in self.labels.items() if path.isprintable()]

    def encoded(self, text: str) -> bytes:
        try:
            return text.encode(self.encoding)
        except UnicodeEncodeError:
            return text.encode("utf-8", "surrogateescape")


@st.composite
def drawn(draw):
    classes = draw(st.lists(TEXT, min_size=2, max_size=4, unique_by=lambda name: unicodedata.normalize("NFC", name)))
    paths = draw(
        st.lists(
            st.builds("{}/{}.png".format, FOLDERS, STEMS.filter(lambda stem: stem[0] not in ".#" and "\\" not in stem)),
            min_size=6, max_size=10, unique=True,
        )
    )  # fmt: skip
    paths = [path.lstrip("/") for path in paths]
    paths[3] = "/ ".join(("/" + paths[4]).rsplit("/", 1)).lstrip("/")  # another photograph, whose name begins with a blank
    accent = draw(st.sampled_from(["NFC", "NFD"]))
    paths[5:6] = [f"née {unicodedata.normalize(form, 'é')}.png" for form in (accent, "NFD" if accent == "NFC" else "NFC")]
    shown = st.one_of(st.none(), st.sets(st.sampled_from(classes)), st.sampled_from(classes).map(lambda name: {name}))
    labels = {path: draw(shown) for path in dict.fromkeys(paths)}
    for path, name in zip(list(labels)[:4], (classes * 2)[:4], strict=True):  # enough for both splits
        labels[path] = {name}
    return Drawn(
        labels,
        set(draw(st.lists(st.sampled_from([*sorted(labels)[1:], *paths[3:7]]), max_size=2))) if draw(st.booleans()) else set(),
        draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"])),
        draw(st.sampled_from([",", ";", "\t", "|"])),
        draw(st.booleans()),
        draw(st.booleans()),
    )


def cell(names: set[str], as_lists: bool) -> str:
    """Labels as tables have them: names with `;` between, or a list."""
    special = names & {"-"} or any(";" in name for name in names)  # which no text can hold
    return json.dumps(sorted(names), ensure_ascii=False) if names and (as_lists or special) else ";".join(sorted(names)) or "-"


def write_csv(root, what):
    what.place(root)
    rows = [
        [path, "" if labels is None else cell(labels, what.as_lists), "unlabeled" if labels is None else "train"][
            : 2 + what.split
        ]
        for path, labels in what.labels.items()
    ]
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=what.separator).writerows([["image", "labels", *(["split"] if what.split else [])], *rows])
    (root / "labels.csv").write_bytes(what.encoded(text.getvalue()))


def write_parquet(root, what):
    what.place(root)
    rows = what.listed()
    lists = [None if labels is None else sorted(labels) for _, labels in rows]
    cells = lists if what.as_lists else [None if names is None else cell({*names}, False) for names in lists]
    kind = pa.list_(pa.string()) if what.as_lists else pa.string()
    columns = {"image": pa.array([path for path, _ in rows], pa.string()), "labels": pa.array(cells, kind)}
    if what.split:
        columns["split"] = pa.array(["unlabeled" if labels is None else "train" for _, labels in rows])
    pq.write_table(pa.table(columns), root / "labels.parquet")


def write_folders(root, what):
    """Each image as a link in the folder of each of its labels; the unlabelled ones in unlabeled/."""
    for shade, (path, labels) in enumerate(what.labels.items()):
        first = None
        for name in sorted({"unlabeled"} if labels is None else labels):
            if name.startswith(".") or (labels is not None and name == "unlabeled"):
                raise DataError("no name of a folder")
            place = root / name / path.rpartition("/")[2]
            if os.path.lexists(place):
                place = place.with_name(f"{shade} {place.name}")
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(PICTURES[shade]) if first is None else os.link(first, place)
            first = first or place
    if what.as_lists and (names := sorted(set().union(*(labels or () for labels in what.labels.values())))):
        also = ["0 linked", "~ linked"][what.split]  # a folder of a label, linked as that of one more
        (root / also).symlink_to(root / names[0])
        what.labels |= {path: {*labels, also} for path, labels in what.labels.items() if names[0] in (labels or ())}


def write_coco(root, what):
    what.place(root / "images")
    shown = {path: labels for path, labels in what.labels.items() if labels is not None}
    coco(root, "all.json", names=shown, keep=False)
    text = json.dumps(json.loads((root / "all.json").read_text()), ensure_ascii=what.as_lists)
    encoding = "utf-8-sig" if what.encoding == "utf-8-sig" else "utf-8"
    (root / "all.json").write_text(text, encoding=encoding, errors="surrogateescape")


def write_label_studio(root, what):
    what.place(root / "upload")
    tasks = []
    for i, (path, labels) in enumerate(what.labels.items()):
        kind = "choices" if what.as_lists else "rectanglelabels"
        result = [{"value": {kind: sorted(labels or ())}, "type": kind}]
        address = f"/data/local-files/?d={quote(os.fsencode('upload/' + path))}"
        tasks.append({"id": i, "data": {"image": address}, "annotations": [] if labels is None else [{"result": result}]})
    (root / "export.json").write_text(json.dumps(tasks))


def write_voc(root, what):
    what.place(root / "JPEGImages")
    (root / "Annotations").mkdir()
    for i, (path, labels) in enumerate(what.listed()):
        if labels is not None:
            node = Xml.Element("annotation")
            Xml.SubElement(node, "filename").text = path
            for name in sorted(labels):
                Xml.SubElement(Xml.SubElement(node, "object"), "name").text = name
            Xml.ElementTree(node).write(
                root / "Annotations" / f"of {i}.xml", encoding=what.encoding.removesuffix("-sig"), xml_declaration=True
            )


def write_cvat(root, what):
    what.place(root / "images")
    top = Xml.Element("annotations")
    for path, labels in what.listed():
        if labels is not None:
            node = Xml.SubElement(top, "image", name=path)
            for name in sorted(labels):
                Xml.SubElement(node, "tag" if what.as_lists else "box", label=name)
    Xml.ElementTree(top).write(root / "annotations.xml", encoding=what.encoding.removesuffix("-sig"), xml_declaration=True)


WRITERS = {
    "csv": write_csv, "parquet": write_parquet, "folders": write_folders, "coco": write_coco,
    "label studio": write_label_studio, "voc": write_voc, "cvat": write_cvat,
}  # fmt: skip


def plain(labels):
    return None if labels is None else {unicodedata.normalize("NFC", name) for name in labels}


def meant(form: str, what: Drawn):
    """{picture: labels} that have to be found, of the images that are there."""
    found = {}
    for shade, (path, labels) in enumerate(what.labels.items()):
        if path in what.lost and form != "folders":
            continue
        if form == "folders" and labels == set():
            continue
        found[PICTURES[shade]] = plain(labels)
    return found


def namesakes(what: Drawn):
    """{picture: labels} of unlabelled photographs that are there, by a lost one whose name differs in accents or blanks only."""
    names = {path: unicodedata.normalize("NFC", path.strip()).casefold() for path in what.labels}
    lost = {names[path]: plain(what.labels[path]) for path in what.lost if what.labels[path] is not None}
    there = {k: names[path] for k, path in enumerate(names) if what.labels[path] is None and path not in what.lost}
    return {PICTURES[k]: lost[name] for k, name in there.items() if name in lost}


def read_back(form: str, what: Drawn, root: Path):
    """{picture: labels} of the images that are there, each once; the error's one line where the set is refused."""
    try:
        WRITERS[form](root, what)
        classes = {name for labels in what.labels.values() for name in plain(labels) or ()}
        kind = form if form == "folders" else None
        options = Own(test_share=0.3, format=kind, names=[*classes])  # which are certain, whatever they look like
        place, reading, seen = own.look(root.resolve(), options)
        raw = read_raw("table", place, reading.model_copy(update={"names": seen.classes}))
        look, _ = survey(root, options)  # as `init-data` does
    except DataError as error:
        return str(error)
    found = [
        (path.read_bytes(), None if item.labels is None else {raw.classes[c] for c in item.labels})
        for item, path in zip(raw.items, raw.images.paths, strict=True)
        if path.is_file()
    ]
    assert len(dict(found)) == len(found) == sum(look.counts.values()) - len(look.missing)
    return dict(found)


def test_hidden_files_and_capital_endings_change_no_format(tmp_path):
    kinds = []
    for form, writer in WRITERS.items():
        (root := tmp_path / form).mkdir()
        writer(root, Drawn({"a/1.png": {"cat"}, "b/2.png": {"dog"}}, set(), "utf-8", ",", True, False))
        kinds.append(understand(root, Own())[1].format)
        for path in [path for path in root.rglob("*") if path.is_file() and path.suffix != ".png"]:
            (hidden := path.parent / ".checkpoints").mkdir(exist_ok=True)
            shutil.copy(path, hidden)
            path.rename(path.with_suffix(path.suffix.upper()))
        assert understand(root, Own())[1].format == looked_at(root, test_share=0.5).source["format"] == [*kinds][-1]
    assert {*kinds} == {*FORMATS}, "a format without a writer"


@pytest.mark.parametrize("form", WRITERS)
def test_any_set_is_read_back_or_refused(form, tmp_path):
    outcomes = []

    @settings(max_examples=75, derandomize=True, phases=[Phase.generate])
    @given(what=drawn())
    def any_set(what):
        with tempfile.TemporaryDirectory(dir=tmp_path) as root:
            found = read_back(form, what, Path(root))
        outcomes.append(not isinstance(found, str))
        if isinstance(found, str):
            assert "\n" not in found
        else:
            unspeakable = {PICTURES[k] for k, path in enumerate(what.labels) if not path.isprintable()}  # no text can name them
            named = {p: labels for p, labels in found.items() if labels is not None or p not in unspeakable}
            expected = {p: labels for p, labels in meant(form, what).items() if p not in unspeakable or p in named}
            others = namesakes(what) if form in ("coco", "voc", "cvat") else {}  # these do not name what is unlabelled
            expected |= {p: labels for p, labels in others.items() if named.get(p) == labels}
            assert expected == named

    any_set()
    assert sum(outcomes) > 0.2 * len(outcomes), "hardly anything is read"


NAMES = TEXT.filter(lambda name: name not in ("-", "*") and name[0] != "[" and ";" not in name)  # those that a data set can have
PATHS = st.lists(
    st.builds("{}{}.png".format, st.sampled_from(["", " ", "a/", " a/", "b/", "A/", "é/", "e\u0301/"]), STEMS),
    min_size=2,
    max_size=8,
)


@settings(max_examples=75, derandomize=True)
@given(
    classes=st.lists(NAMES, min_size=1, max_size=4, unique_by=lambda name: unicodedata.normalize("NFC", name)),
    paths=PATHS,
    choice=st.lists(st.lists(st.sampled_from([-1, 0, 1]), min_size=4, max_size=4), min_size=8, max_size=8),
    in_part=st.booleans(),
    marks=st.tuples(st.sampled_from([None, "", "0a1b2c"]), st.sampled_from(["", "3d4e"])),
)
def test_what_is_imported_is_what_was_filled_in(tmp_path_factory, classes, paths, choice, in_part, marks):
    """A list as `suggest` and the pages write it is imported, and what `import-labels` writes is read: both the same."""
    place, ids = tmp_path_factory.getbasetemp() / "filled.csv", sorted({readable(path) for path in paths})
    classes = [unicodedata.normalize("NFC", name) for name in classes]
    filled = {}
    for image, row in zip(ids, choice, strict=False):
        labels = sorted(name for name, there in zip(classes, row, strict=False) if there == 1)
        absent = sorted(name for name, there in zip(classes, row, strict=False) if there == 0)
        if labels or absent or not in_part:
            filled[image] = imported.Given(labels, absent if in_part and labels else None, *marks)
    write(place.parent, table_of(filled), place.name)
    again = imported.added_before(place)
    assert again == filled and {(given.was, given.photo or "") for given in again.values()} <= {marks}
    rows = [[image, ";".join(given.labels) or "-", ";".join(given.absent or ()) or "-"] for image, given in filled.items()]
    write(place.parent, [row[: 2 + in_part] for row in (["image", "labels", "absent"], *rows)], place.name)
    assert imported.read_added(place, classes, ids) == filled


SPELLINGS = ["née.png", "ne\u0301e.png", "NÉE.png", " née.png", "née"]


@pytest.mark.parametrize("rows", ["image", "label"])
@pytest.mark.parametrize("form", ["csv", "parquet", "coco"])
@given(
    names=st.lists(st.sampled_from(SPELLINGS), min_size=2, max_size=3, unique=True),
    shown=st.lists(st.sampled_from([None, {"cat"}, {"dog"}, {"cat", "dog"}, set()]), min_size=3, max_size=3),
    there=st.integers(0, 2),
)
def test_a_missing_photograph_gives_no_labels_to_one_whose_name_is_spelled_otherwise(form, rows, names, shown, there):
    labels = dict(zip(names, shown, strict=False))
    kept = names[there % len(names)]
    others = {f"{i}.png": {name} for i, name in enumerate(("cat", "dog", "cat", "dog"))}
    with tempfile.TemporaryDirectory() as place:
        what = Drawn(others | labels, {*names} - {kept}, "utf-8", ",", False, False)
        WRITERS[form](Path(place), what)
        try:
            raw = looked_at(Path(place), rows=rows)
        except DataError:
            return
        files = zip(raw.items, raw.images.paths, strict=True)
        found = {Path(item.id).name: labels_of(raw)[item.id] for item, path in files if path.name == kept}
        if labels[kept] is None and found.get(kept) is not None:
            assert any("found under another name" in note for note in raw.notes)
        if kept.endswith(".png") and (form != "coco" or labels[kept] is not None):  # which COCO does not name at all
            assert found == {kept: plain(labels[kept])}
