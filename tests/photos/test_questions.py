"""What is not understood stops the command, with an answer that works when it is given; and no file of ours is ever labels."""

import shlex
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from dicap.errors import DataError
from dicap.photos.readers.heads import OF_ROWS, USUAL, plain
from dicap.photos.readers.question import Question
from dicap.photos.readers.read import read
from dicap.photos.readers.understand import understand
from dicap.settings import Own
from photos.awkward import asked, labels_of, looked_at, pictures, refused, write
from stages.photos import init_data

NAMES = [f"{i:02d}.png" for i in range(12)]
IN_FOLDERS = [f"{'abcd'[i % 4]}/{i}.png" for i in range(12)]


def listed(root, rows, name="labels.csv"):
    """Twelve photographs and a table."""
    pictures(root, NAMES)
    return write(root, rows, name)


PETS = [{"cat"}, {"dog"}, {"cat", "dog"}, set()] * 3
ONE_HOT = [[name, int("cat" in pets), int("dog" in pets)] for name, pets in zip(NAMES, PETS, strict=True)]
MEANT = dict(zip(NAMES, PETS, strict=True))
LISTED = [[name, ";".join(sorted(pets)) or "-"] for name, pets in MEANT.items()]
CATDOG = ["cat", "dog"]
TABLES = {  # the table, the number of questions, and what is meant
    "one-hot": ([["filename", "cat", "dog"], *ONE_HOT], 0, MEANT),
    "a flag beside classes": ([["image", "cat", "dog", "is_front"], *([*row, i % 2] for i, row in enumerate(ONE_HOT))], 1, MEANT),
    "a number of the row": ([["", "image", "cat", "dog"], *([i, *row] for i, row in enumerate(ONE_HOT))], 0, MEANT),
    "sizes and ids": (
        [["image", "width", "height", "image_id", *CATDOG], *([n, 10, 8, f"i{n}x", *row] for n, *row in ONE_HOT)],
        0,
        MEANT,
    ),
    "genres beside a flag": (
        [["image", "genres", "adult", "year"], *([*row, i % 2, 1990 + i] for i, row in enumerate(LISTED))],
        1,
        MEANT,
    ),
    "-1 for absent": ([["image", "cat", "dog"], *([n, *(2 * v - 1 for v in row)] for n, *row in ONE_HOT)], 1, MEANT),
    "ticks": ([["image", "cat", "dog"], *([n, *("x" * v for v in row)] for n, *row in ONE_HOT if any(row))], 1,
              {name: pets for name, pets in MEANT.items() if pets}),
    "patients": ([["image", "cat", "dog", "Patient ID"], *([*row, f"p{i // 2}"] for i, row in enumerate(ONE_HOT))], 1, MEANT),
    "a marker of what is open": (
        [["image", "cat", "dog", "Unlabeled"], *([n, *row, int(not any(row))] for n, *row in ONE_HOT)],
        1,
        {name: pets or None for name, pets in MEANT.items()},
    ),
    "a class of 0 and 1 called label": ([["image", "label"], *([n, v] for n, v, _ in ONE_HOT)], 1,
                                        {n: {"label"} if v else set() for n, v, _ in ONE_HOT}),
    "an empty column of absent classes": ([["image", "labels", "absent"], *([*row, ""] for row in LISTED)], 1, MEANT),
    "two names of the image": (
        [["image", "file_name", "labels"], *([int(n[:2]), n, ";".join(p) or "-"] for n, p in MEANT.items())],
        1,
        MEANT,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TABLES)
def test_a_table_is_read_as_meant_after_so_many_questions(tmp_path, what):
    rows, questions, meant = TABLES[what]
    raw, turns = asked(listed(tmp_path, rows))
    assert {name: labels for name, labels in labels_of(raw).items() if name in meant} == meant and turns == questions


@pytest.mark.parametrize("head", ["confidence", "Vorhanden", "flag", "存在", "y"])
@pytest.mark.parametrize("marks", ["1/0", "True/False", "yes/no", "1.0/0.0", "1/1", "0.93/0.12", "there/gone"])
def test_under_any_head_verified_negatives_are_absent_and_the_rest_unknown(tmp_path, marks, head):
    yes, no = marks.split("/")
    rows = [["image_id", "source", "label_name", head]]
    for name, pets in MEANT.items():
        rows += [[name[:-4], "verification", pet, yes if pet in pets else no] for pet in ("cat", "dog", "owl")]
    listed(tmp_path, [*rows, [NAMES[0][:-4], "verification", "bird", yes]])
    if marks == "1/1":
        assert labels_of(asked(tmp_path)[0])[NAMES[1]] == {"cat", "dog", "owl"}
        return
    is_known = marks not in ("0.93/0.12", "there/gone") and head in ("confidence", "y")
    if not is_known:
        refused(
            tmp_path, f"does {head} .* say whether a row's label is there. Then write 1 .* --value .*; else --ignore '?{head}"
        )
        assert looked_at(tmp_path, rows="label", ignore=["source", head]).classes == ["bird", *CATDOG, "owl"]
    if marks in ("0.93/0.12", "there/gone"):
        return
    raw, turns = asked(tmp_path, **({} if is_known else {"value": head}))
    assert turns == 1 and labels_of(raw) == MEANT | {NAMES[0]: {"cat", "bird"}} and raw.classes == ["bird", *CATDOG]
    assert [item.absent for item in raw.items][:3] == [(2,), (1,), ()]


@pytest.mark.parametrize("marks", ["1/0", "there/gone"])
@pytest.mark.parametrize("several", [True, False])
def test_where_a_row_is_said_to_be_a_whole_image_no_column_makes_it_a_label(tmp_path, marks, several):
    rows = [[name, pet, marks.split("/")[i % 3 == 0]] for i, name in enumerate(NAMES) for pet in CATDOG[: 1 + several]]
    listed(tmp_path, [["image", "label", "present"], *rows])
    if not several:
        assert all(item.absent is None for item in asked(tmp_path, rows="image")[0].items)
        return
    for said in ({"value": "present"}, {}):
        with pytest.raises(DataError, match=r"with other labels; keep one|column present is 'gone'"):
            asked(tmp_path, rows="image", **said)


@pytest.mark.parametrize("heads", ["xmin ymin xmax ymax", "x y w h", "bbox", "XMin XMax YMin YMax"])
@pytest.mark.parametrize("head", ["occluded", "iscrowd", "truncated", "difficult", "IsOccluded", "IsGroupOf", "Ort"])
@given(marks=st.lists(st.booleans(), min_size=12, max_size=12))
@settings(max_examples=5, derandomize=True)
def test_what_is_said_of_a_box_is_not_said_of_its_label(tmp_path_factory, heads, head, marks):
    root = tmp_path_factory.getbasetemp() / "boxes"
    rows = [[name, pet, *(f"{i}.{k}" for k in heads.split())] for i, (name, pets) in enumerate(MEANT.items()) for pet in pets]
    listed(root, [["ImageID", "LabelName", *heads.split(), head], *([*row, int(m)] for row, m in zip(rows, marks, strict=True))])
    raw, turns = asked(root)
    assert {name: pets or set() for name, pets in labels_of(raw).items()} == MEANT and turns == 1
    assert all(item.absent is None for item in raw.items)


@pytest.mark.parametrize("name", ["labels.json", "notes.txt", "a/1.xmp", "meta.jsonl", "clip.mov", "b/raw.cr2"])
def test_a_file_that_nothing_reads_is_asked_about_beside_folders_and_tables(tmp_path, name):
    pictures(tmp_path / "tree", IN_FOLDERS)
    listed(tmp_path / "table", [["image", "labels"], *LISTED])
    for root in (tmp_path / "tree", tmp_path / "table"):
        looked_at(root)
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("{}")
        ending = name[name.rindex(".") :]
        refused(root, f"files that are not read: {ending} \\(the first: {name}\\).* --ignore {ending}")
        assert asked(root, **({"format": "folders"} if root.name == "tree" else {}))[1] == 1


ANYTHING = "Bilder images/masks train_images/test_images data/data_(2) May/June train2017/val2017 entrenamiento/test_set"
ANYTHING += " cat/my_train cat/My.photoslibrary 2024-01/2024-02 site_A/site_B 7/8 n01440764/n01443537 class0/class1/class2"


@pytest.mark.parametrize("names", ANYTHING.split())
def test_folders_that_hold_photographs_of_anything_are_no_labels_unless_that_is_said(tmp_path, names):
    folders = sorted(names.split("/"))
    pictures(tmp_path, [f"{folders[i % len(folders)]}/{i}.png" for i in range(20)])
    refused(tmp_path, r"is '.*' a label\?.* write the labels as labels\.csv .* pass --format folders", {})
    assert looked_at(tmp_path, format="folders").classes == folders


@pytest.mark.parametrize(
    ("folder", "beside"),
    [("data", "labels.json"), ("2024-01", "2024-01/00.png.xmp"), ("images/train", "labels/train/00.txt")],
)
def test_labels_that_nothing_reads_are_read_once_they_are_written_as_a_table(tmp_path, folder, beside):
    pictures(tmp_path / folder, NAMES)
    (tmp_path / beside).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / beside).write_text("{}")
    refused(tmp_path, rf"not read: .* \(the first: {beside}\); is .* a label\?.* write the labels as labels\.csv")
    write(tmp_path, [["image", "labels"], *([f"{folder}/{name}", labels] for name, labels in LISTED)])
    raw, turns = asked(tmp_path)
    assert labels_of(raw) == {f"{folder}/{name}": pets for name, pets in MEANT.items()} and turns == 1


OURS = {
    "predictions.csv": ["image", "class", "probability", "decision", "chance", "chance_low", "chance_high"],
    "per image.csv": ["image", "labels", "unsure", "absent"],
    "Kopie von labels-ab12cd (1).csv": ["image", "labels", "absent"],
    "list.csv": ["image", "labels", "model_says"],
}


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
@pytest.mark.parametrize("name", OURS)
def test_what_our_commands_wrote_is_never_labels(tmp_path, name, kind):
    pictures(tmp_path, IN_FOLDERS)
    before = labels_of(looked_at(tmp_path))
    frame = pd.DataFrame([[f"a/{i}.png", "yes", *["0.9"] * 9][: len(OURS[name])] for i in (0, 4, 8)], columns=OURS[name])
    path = tmp_path / Path(name).with_suffix(f".{kind}" if "labels-" not in name else ".csv")
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False, sep=",\t"[path.suffix == ".tsv"])
    assert labels_of(looked_at(tmp_path)) == before
    with pytest.raises(DataError, match="answers of a model, or a list to import"):
        understand(path, Own())


def test_what_is_written_once_is_kept_whatever_comes_into_the_folder(tmp_path):
    pictures(tmp_path, IN_FOLDERS)
    root, own = understand(tmp_path, Own(test_share=0.3))
    before = labels_of(read(root, own))
    (tmp_path / "labels.csv").write_text("image,labels\na/0.png,x\nb/1.png,y\n")
    assert labels_of(read(root, own)) == before
    with pytest.raises(DataError, match=r"labels.csv: no such file of labels"):
        read(tmp_path / "a", Own())
    table = listed(tmp_path / "table", [["image", "cat", "dog"], *ONE_HOT])
    root, own = understand(table, Own(test_share=0.3))
    write(table, [["image", "cat", "dog", "seen"], *([*row, 1] for row in ONE_HOT)])
    with pytest.raises(DataError, match="column seen has no role; does it say nothing"):
        read(root, own)


# Drawn tables. A head that is drawn says nothing to the reader; the values are what decides.
HEAD_WORDS = "rating Ort née year notes reviewer fold is_front adult confidence site source camera x1 label_id quality seen"
HEADS = st.sampled_from(HEAD_WORDS.split())
CELLS = st.sampled_from(["0/1", "-1/1", "numbers", "words", "unique", "splits", "blank", "fractions", "labels"])
NAMED = st.sampled_from(["cat", "dog", "owl", "NA", "fold", "red car", "1", "T-shirt", "Sci-Fi", "née", "train"])
CLASSES = st.lists(NAMED, min_size=2, max_size=4, unique=True)


@st.composite
def drawn(draw):
    classes = draw(CLASSES)
    some = draw(st.lists(st.sets(st.sampled_from(classes)), min_size=12, max_size=12))
    labels = {
        name: {classes[i % len(classes)]} | set(one) if i < 2 * len(classes) else set(one)
        for i, (name, one) in enumerate(zip(NAMES, some, strict=True))
    }
    form = draw(st.sampled_from(["names", "one-hot", "-1/1", "ticks", "rows", "lists"]))
    mark = draw(st.sampled_from([";", ";", "#", ", ", "|", "、", " / ", "+"]))
    extra = {draw(HEADS): draw(CELLS) for _ in range(draw(st.integers(0, 3)))}
    order = draw(st.permutations(range(12)))
    extra = {head: kind for head, kind in extra.items() if head not in classes}
    return classes, labels, form, mark, extra, order, draw(st.booleans())


def cells_of(kind, i, classes):
    return {
        "0/1": i % 2,
        "-1/1": 2 * (i % 2) - 1,
        "numbers": i % 5 + 2,
        "words": "ab"[i % 2] + "x",
        "unique": f"u{i}",
        "splits": ("train", "test")[i % 2],
        "blank": "",
        "fractions": i / 16,
        "labels": classes[i % len(classes)],
    }[kind]


def table_of(what):
    classes, labels, form, mark, extra, order, first = what
    head, rows = {"names": ["labels"], "lists": ["labels"], "rows": ["label"]}.get(form, classes), []
    for i in order:
        name, shown = NAMES[i], labels[NAMES[i]]
        value = {"one-hot": (0, 1), "-1/1": (-1, 1), "ticks": ("", "x")}.get(form, (0, 0))
        parts = {
            "names": [[mark.join(sorted(shown)) or "-"]],
            "lists": [[repr(sorted(shown))]],
            "rows": [[one] for one in sorted(shown)] or [["-"]],
        }
        for part in parts.get(form, [[value[one in shown] for one in classes]]):
            more = [cells_of(kind, i, classes) for kind in extra.values()]
            rows.append([name, *more, *part] if first else [name, *part, *more])
    return [["image", *extra, *head] if first else ["image", *head, *extra], *rows]


def test_a_drawn_table_is_read_as_meant_or_refused(tmp_path):
    pictures(tmp_path, NAMES)
    outcomes = []

    @settings(max_examples=400, derandomize=True, deadline=None)
    @given(drawn())
    def any_table(what):
        classes, labels, form, mark, extra, *_ = what
        write(tmp_path, table_of(what))
        # What its author answers: which columns say nothing; the separator; that NA is a class; what -1 and a blank say.
        said = {"ignore": [*extra], "words": "class", "minus": "absent", "blank": "absent", "empty": "none", "test_share": 0.3}
        said |= {"separator": mark.strip()} if form == "names" else {"rows": "label"} if form == "rows" else {}
        said |= {"classes": classes} if form in ("one-hot", "-1/1", "ticks") else {}
        try:
            found = labels_of(looked_at(tmp_path, **said))
        except DataError:
            outcomes.append(False)
        else:
            assert found == labels
            outcomes.append(True)
        # Who answers nothing: what is read is what was meant, or a question.
        try:
            raw = looked_at(tmp_path)
        except DataError:
            pass
        else:
            silent = ("blank", "splits")
            if form in ("one-hot", "-1/1", "ticks") and {*extra} & {*raw.classes}:  # as classes by these names would be
                assert all(kind in ("0/1", "-1/1", *silent) or USUAL.fullmatch(head) for head, kind in extra.items())
                assert not any(OF_ROWS.fullmatch(plain(head)) or USUAL.fullmatch(head) for head in {*extra} & {*raw.classes})
                return
            left = {head for head, kind in extra.items() if kind not in silent and not USUAL.fullmatch(head)}
            assert not left, "an unknown column is asked about"
            assert labels_of(raw) == {name: shown or (None if form == "ticks" else set()) for name, shown in labels.items()}

    any_table()
    assert sum(outcomes) > 0.6 * len(outcomes), "hardly anything is read"


STARTS = "--labels labels;--labels year;--image image;--ignore year;--ignore notes,site;--names NA;--words class;--separator ,;"
STARTS += "--minus absent;--blank unknown;--rows label;--group site;--test-share 0.3"


def test_what_is_proposed_has_all_that_was_typed_and_ends_in_a_reading_or_a_refusal(tmp_path):
    pictures(tmp_path, NAMES)

    @settings(max_examples=200, derandomize=True, deadline=None)
    @given(drawn(), st.lists(st.sampled_from(STARTS.split(";")), max_size=5, unique_by=lambda option: option.split()[0]))
    def any_start(what, start):
        write(tmp_path, table_of(what))
        words = shlex.split(" ".join(start))
        for _ in range(5):
            error = CliRunner().invoke(init_data.command, [str(tmp_path), "--dry-run", *words]).exception
            if not isinstance(error, Question):
                assert error is None or isinstance(error, DataError)
                return
            *words, folder, dry = shlex.split(str(error).partition(" -- as it would be read: init-data ")[2])
            assert (folder, dry) == (str(tmp_path), "--dry-run")
            assert all(value in words[words.index(option) + 1] for option, value in map(str.split, start))
        raise AssertionError("questions without an end")

    any_start()
