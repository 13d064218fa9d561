"""What is made of photographs, splits by other words and labels in other forms are asked about, with a remedy that works."""

import re
import shlex
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dicap.errors import DataError
from dicap.photos.readers.read import look, read
from dicap.photos.survey import survey
from dicap.settings import Own
from photos.awkward import asked, download, labels_of, looked_at, picture, pictured, pictures, refused, write
from photos.test_questions import CATDOG, LISTED, MEANT, NAMES, ONE_HOT, listed

OF_FOLDERS = [f"{pet}/{pet} ({i}).png" for pet in CATDOG for i in range(5)]
MADE = {  # a name for the picture that is made of a photograph, by its folder and its name
    "a word after the name": lambda folder, name: f"{folder}{name}_mask.png",
    "a word and a number": lambda folder, name: f"{folder}{name}_mask_1.png",
    "a word before the name": lambda folder, name: f"{folder}thumb_{name}.png",
    "a folder": lambda folder, name: f"masks/{name}.png",
    "another ending in a folder": lambda folder, name: f"thumbs/{name}.jpg",
    "a number and words": lambda folder, name: f"{folder}{name}_0_mask_left.png",
    "one only": lambda folder, name: f"{folder}{name}_mask.png" if "1" in name else "",
    "a folder within": lambda folder, name: f"{folder}masks/{name}_m.png",
    "a folder by a word before": lambda folder, name: f"masks_{folder[:-1] or 'all'}/{name}.png",
    "folders within one": lambda folder, name: f"masks/{folder}{name}.png",
    "a folder beside": lambda folder, name: f"{folder[:-1] or 'all'}_masks/{name}.png",
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("form", ["folders", "table", "table of some in a folder"])
def test_pictures_made_of_photographs_are_asked_about_and_left_out(tmp_path, made, form):
    place = {"folders": "", "table": "", "table of some in a folder": "img/"}[form]
    names = OF_FOLDERS if form == "folders" else [place + name for name in NAMES]
    pictures(tmp_path, names)
    if form != "folders":
        rows = LISTED if form == "table" else LISTED[:7]  # the others are unlabelled
        write(tmp_path, [["image", "labels"], *([place + name, labels] for name, labels in rows)])
    seen, reading = survey(tmp_path, Own(test_share=0.3))
    before = labels_of(read(seen.root, reading))
    parts = [name.rpartition("/") for name in names]
    masks = [mask for folder, slash, last in parts if (mask := MADE[made](folder + slash, last.removesuffix(".png")))]
    for mask in masks:
        picture(tmp_path / mask, len(mask))
    words = "masks, thumbnails or copies|which folder is the label|is '(masks|thumbs)' a label"
    if form == "folders" and "folder" in made:
        refused(tmp_path, words, {})
        raw = looked_at(tmp_path, ignore=["*mask*", "*thumbs*"])
    else:
        raw, turns = asked(tmp_path)
        assert turns == 1
    assert labels_of(raw) == before
    with pytest.raises(DataError, match=f"{words}|no such class"):  # `convert` asks too
        read(tmp_path, reading)
    meant = {"format": "folders"} if form == "folders" and "folder" in made else {}  # as whose name is hardly that of a label
    raw = looked_at(tmp_path, derived="photographs", label_folder="first", **meant)
    assert len(raw.items) == len(before) + len(masks), "where they are photographs"


@pytest.mark.parametrize("form", ["folders", "within", "img/", "train/,test/", "unlabeled"])
def test_of_two_folders_of_pictures_none_is_proposed(tmp_path, form):
    tops, more = ("left", "depth"), tmp_path.parent / f"{tmp_path.name} more"
    if form in ("folders", "within"):
        names = OF_FOLDERS
        made = [f"{pet}/{top}/{last}" for pet, _, last in (name.partition("/") for name in names) for top in tops]
        made = made if form == "within" else [f"{top}/{name.rpartition('/')[2]}" for name in names for top in tops]
    else:
        places = form.split(",") if "/" in form else [""]
        names = [place + name for place in places for name in NAMES]
        made = [f"{place if len(places) > 1 else ''}{top}/{name}" for place in places for name in NAMES for top in tops]
        write(tmp_path, [["image", "labels"], *([place + name, labels] for place in places for name, labels in LISTED)])
    said = {"unlabeled_root": str(more)} if form == "unlabeled" else {}
    pictures(tmp_path, names)
    pictures(more if said else tmp_path, [*made, *(name for name in names if said)])
    refused(tmp_path, "masks, thumbnails or copies.* --ignore leaves|which folder is the label.* --ignore .*leaves", {}, **said)
    if form == "within":  # whatever the label is
        refused(tmp_path, "masks, thumbnails or copies", {}, label_folder="first")
    patterns = [*tops, *(f"*/{top}/*" for top in tops)]
    raw = looked_at(tmp_path, ignore=patterns, **said)
    assert len(raw.items) == len(names) and not {*tops} & {part for item in raw.items for part in item.id.split("/")}


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("tops", [[""], ["train/", "test/"]])
def test_numbers_that_begin_anew_and_links_into_several_folders_are_no_question(tmp_path, tops, linked):
    pictures(
        tmp_path,
        [f"{top}{pet}/{i + linked * 9 * k}.png" for top in tops for k, pet in enumerate((*CATDOG, "owl")) for i in range(5)],
    )
    if linked:  # photographs with two labels
        for path in sorted(tmp_path.glob("**/*.png")):
            both = path.parent.parent / "outdoors"
            both.mkdir(exist_ok=True)
            (both / path.name).hardlink_to(path)
    pictures(more := tmp_path.parent / f"{tmp_path.name} more", [f"{i}.png" for i in range(4)])
    for said in ({}, {"unlabeled_root": str(more)}):
        raw, turns = asked(tmp_path, **said)
        assert {*raw.classes} == {*CATDOG, "owl", *["outdoors"] * linked} and turns == 0


@pytest.mark.parametrize("endings", ["jpg png", "jpg png gif", "tif gif", "jpg jpg png", "jpg jpg", "png png", "jpg webp"])
def test_folders_that_are_numbered_alike_are_asked_about_where_their_endings_differ(tmp_path, endings):
    folders = [f"{'xyz'[k]}/{i}.{ending}" for k, ending in enumerate(endings.split()) for i in range(4)] + ["w/8.jpg", "w/9.jpg"]
    pictures(tmp_path, [f"{top}/{name}" for top in ("train", "test") for name in folders])
    if len({*endings.split()}) > 1:
        words = "masks, thumbnails or copies.* if no folder is a label, write labels.csv"
        refused(tmp_path, words, {})
    raw = looked_at(tmp_path, **({"derived": "photographs"} if len({*endings.split()}) > 1 else {}))
    assert raw.classes == sorted({name[0] for name in folders})


@given(st.lists(st.integers(0, 2), min_size=4, max_size=8))
def test_a_number_added_once_to_each_of_several_names_is_asked_about(numbers):
    names = [f"{CATDOG[i % 2]}/x{i}{f' ({k})' * (k > 0)}.png" for i, count in enumerate(numbers) for k in range(count + 1)]
    with tempfile.TemporaryDirectory() as place:
        pictures(Path(place), names)
        raw, turns = asked(Path(place))
    assert turns == (sum(numbers) > 2 and max(numbers) == 1) and len(raw.items) == len(numbers if turns else names)


@pytest.mark.parametrize("form", ["folders", "table", "some without labels"])
@given(endings=st.lists(st.sets(st.sampled_from(["jpg", "png", "tif"]), min_size=1), min_size=6, max_size=12))
def test_a_photograph_in_files_of_several_endings_is_a_question_or_on_one_side(form, endings):
    with tempfile.TemporaryDirectory() as place:
        names = [f"{CATDOG[i % 2]}/{i}.{ending}" for i, some in enumerate(endings) for ending in sorted(some)]
        pictures(Path(place), names)
        twins = len(names) > len(endings)
        if form != "folders":
            last = names[:-1] if form == "some without labels" and twins and len(endings[-1]) > 1 else names
            write(Path(place), [["image", "label"], *([name, name[:3]] for name in last)])
            twins = last != names
        whole = looked_at(Path(place), derived="photographs")
        assert len(whole.items) == len(names) or form != "folders"
        assert len({(Path(item.id).stem, item.split == "test") for item in whole.items}) == len(endings)
        if twins:
            refused(Path(place), "masks, thumbnails or copies.*--derived photographs")


@pytest.mark.parametrize("name", ["@tmp", "cat/#snapshot", "$RECYCLE.BIN/S-1", "_old"])
def test_folders_of_programs_beside_labels_are_asked_about(tmp_path, name):
    pictures(tmp_path, [*OF_FOLDERS, *(f"{name}/{i}.png" for i in range(4))])
    raw, turns = asked(tmp_path)
    assert turns == 1 and {*labels_of(raw)} == {*OF_FOLDERS}
    (tmp_path / "clip.mov").write_text("")  # what is then typed leaves out both
    ignore = shlex.split(refused(tmp_path, "did a program .* --format folders --ignore .*,.mov", {}))[-1]
    assert {*labels_of(looked_at(tmp_path, format="folders", ignore=ignore.split(",")))} == {*OF_FOLDERS}


def test_a_photograph_that_comes_later_is_unlabelled(tmp_path):
    listed(tmp_path, [["image", "labels"], *LISTED])
    seen, own = survey(tmp_path, Own())
    assert seen.counts["unlabeled"] == 0
    picture(tmp_path / "later.png", 5)
    assert labels_of(read(seen.root, own)) == MEANT | {"later.png": None}


def table(*rows, name="labels.csv"):
    return lambda root: listed(root, [*rows], name)


def two(name, heads):
    first, second = table(["image", "labels"], *LISTED[:8], name="train.csv"), table(heads, *LISTED[8:], name=name)
    return lambda root: [first(root), second(root)]


def in_folders(root):
    rows = [[f"{('train', 'holdout')[i > 7]}/{name}", labels] for i, (name, labels) in enumerate(LISTED)]
    pictured(root, [["image", "labels"], *rows])


def one_hot(no, yes):
    return table(["image", *CATDOG], *([name, *((no, yes)[v] for v in row)] for name, *row in ONE_HOT))


REFUSED = {  # what is there, and the words of the one line
    "photographs beside a folder of train": (in_folders, "which split is it of. Write a column split"),
    "a file by another word": (
        two("holdout.csv", ["image", "labels"]),
        "holdout.csv: names no split, unlike other files; rename it",
    ),
    "other heads for another split": (
        two("test.csv", ["filename", "tags"]),
        "which of tags .*, labels .* holds the labels. --labels names the one that does",
    ),
    "dashes": (one_hot("-", 1), "column cat is '-'; write 1"),
    "words of another language": (
        one_hot("nej", "tak"),
        "which of cat .*, dog .* holds the labels. .* or write the labels as labels.csv",
    ),
    "a count beside classes": (
        table(["image", *CATDOG, "total"], *([*row, sum(row[1:])] for row in ONE_HOT)),
        "column total is '2'; .* --ignore total",
    ),
    "a table without labels": (
        lambda root: pictured(root, [["file_name", "width"], *([name, 10] for name in OF_FOLDERS)], "pets/meta.csv"),
        "column labels is missing .* where folders are the labels, pass --format folders",
    ),
    "test images alone": (
        table(["image", "labels", "split"], *([*row, "test"] for row in LISTED)),
        "no image of split train; .* leave the splits out: init-data --ignore split",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_where_no_option_says_it_no_option_is_named(tmp_path, what):
    make, words = REFUSED[what]
    make(tmp_path)
    line = refused(tmp_path, words, {}, files=["holdout.csv", "train.csv"] if "file by" in what else None)
    for head in re.findall("--ignore (total|split)", line):
        assert looked_at(tmp_path, ignore=[head]).classes == CATDOG


@pytest.mark.parametrize("named", [True, False])
def test_an_index_of_parquet_is_a_column(tmp_path, named):
    pictures(tmp_path, NAMES)
    frame = pd.DataFrame([row for _, *row in ONE_HOT], columns=CATDOG, index=pd.Index(NAMES, name="image" if named else None))
    frame.to_parquet(tmp_path / "labels.parquet")
    raw, turns = asked(tmp_path)
    assert labels_of(raw) == MEANT and turns == 1 - named


def test_groups_that_differ_in_capitals_or_as_numbers_are_one(tmp_path):
    listed(tmp_path, [["image", "labels", "group"], *([*row, ("P1", "p1", "1", "1.0")[i % 4]] for i, row in enumerate(LISTED))])
    items = looked_at(tmp_path).items
    assert len({item.group for item in items}) == 2 and items[0].group == items[1].group != items[2].group == items[3].group


def test_a_row_of_blanks_is_none_of_the_classes_where_blanks_are_absent(tmp_path):
    one_hot("", 1)(tmp_path)
    raw, turns = asked(tmp_path)
    assert labels_of(raw) == MEANT and turns == 1 and any("own.empty" in note for note in raw.notes)
    found = labels_of(looked_at(tmp_path, blank="absent", empty="unlabeled"))
    assert found == {name: pets or None for name, pets in MEANT.items()}


def test_of_several_groups_the_widest_is_named_that_leaves_two_sides(tmp_path):
    rows = [[*row, "MF"[i % 2], f"s{i}", f"p{i // 2}", (0, 1, -1, "")[i % 4]] for i, row in enumerate(LISTED)]
    listed(tmp_path, [["image", "labels", "patient sex", "study", "patient", "finding"], *rows])
    roles = {"group": "patient", "labels": "labels", "ignore": ["patient sex", "study", "finding"]}
    refused(tmp_path, r"column patient \(.*\) belong on one side.* finding \(0, 1, -1, blanks\)", roles)


def test_a_column_that_was_blank_is_not_passed_over_once_it_is_filled(tmp_path):
    listed(tmp_path, [["image", "labels", "split"], *([*row, ""] for row in LISTED)])
    _, reading, _ = look(tmp_path, Own(test_share=0.3))
    listed(tmp_path, [["image", "labels", "split"], *([*row, "train"] for row in LISTED)])
    with pytest.raises(DataError, match="column split has no role"):
        read(tmp_path, reading.model_copy(update={"test_share": 0.3}))


@pytest.mark.parametrize("said", ["named", "not named"])
def test_folders_of_labels_beside_a_table_of_others_are_asked_about(tmp_path, said):
    names = [f"train/{folder}/{folder}{i}.png" for folder in CATDOG for i in range(4)]
    pictures(tmp_path, [*names, *(f"test/{name}" for name in NAMES)])
    rows = [[f"test/{name}", label, ""] for name, label in LISTED]
    listed(tmp_path, [["image", "labels", "split"], *rows, *([name, "", "unlabeled"] for name in names if said == "named")])
    if said == "named":
        assert {item.split for item in looked_at(tmp_path).items if item.labels is None} == {"unlabeled"}
        return
    refused(tmp_path, "are these folders labels", {"format": "table"})
    assert asked(tmp_path)[0].items


@pytest.mark.parametrize("split", ["column", "folders"])
@pytest.mark.parametrize("empty", ["none", "unlabeled"])
def test_an_empty_cell_means_the_same_under_a_split_by_folders_and_by_a_column(tmp_path, split, empty):
    parts = [("train", "test")[i % 3 == 2] for i in range(12)]
    names = [f"{part}/{name}" if split == "folders" else name for part, name in zip(parts, NAMES, strict=True)]
    pets = ["", *["cat", "dog"] * 4, "", "cat", "dog"]
    rows = [[*row, part][: 2 + (split == "column")] for *row, part in zip(names, pets, parts, strict=True)]
    pictured(tmp_path, [["image", "labels", "split"][: len(rows[0])], *rows])
    if split == "folders":
        refused(tmp_path, r"2 of 12 images have no label .*--empty none", {"empty": "unlabeled"})
    found = labels_of(looked_at(tmp_path, empty=empty))
    bare = set() if empty == "none" else None
    assert found == {name: {pet} if pet else bare for name, pet in zip(names, pets, strict=True)}


@pytest.mark.parametrize("file", ["corrections.csv", "labels.csv"])
@pytest.mark.parametrize("head", ["flag", "blurry", "label"])
def test_a_table_that_says_little_of_photographs_in_folders_of_labels_is_asked_about(tmp_path, head, file):
    rows = [[name, ("ok", "blurred")[i % 3 == 0] if head == "label" else int(i % 3 == 0)] for i, name in enumerate(OF_FOLDERS)]
    pictured(tmp_path, [["image", head], *rows], file)
    if (head, file) == ("label", "labels.csv"):  # the plain form
        assert looked_at(tmp_path).classes == ["blurred", "ok"]
        return
    refused(tmp_path, r"are these folders labels \(--format folders\).* --format table")
    assert asked(tmp_path)[0].classes in ([head], ["blurred", "ok"])
    raw, turns = asked(tmp_path, format="folders")  # what is in the table is then asked
    assert raw.classes == CATDOG and turns == 1


@pytest.mark.parametrize(
    ("path", "level", "classes"),
    [
        ("{pet}/patient{i}/{i}.png", "first", CATDOG),
        ("patient{i}/{pet}/{i}.png", "last", CATDOG),
        ("{pet}/a/x/{i}.png", "all", [*CATDOG, "a", "x"]),
    ],
)
def test_of_nested_folders_none_is_proposed_as_the_label(tmp_path, path, level, classes):
    pictures(tmp_path, [path.format(pet=pet, i=2 * i + k) for k, pet in enumerate(CATDOG) for i in range(4)])
    refused(tmp_path, "which folder is the label.*--label-folder.*Name folders of splits train, val", {}, format="folders")
    assert looked_at(tmp_path, format="folders", label_folder=level).classes == sorted(classes)


@pytest.mark.parametrize("odd", ["skip", "TRUE", "yes", "#N/A", "#REF!", "2 cat", "owl (0.9)", "{owl", "cat?"])
@pytest.mark.parametrize("beside", ["", "cat;"])
def test_a_single_cell_that_is_hardly_a_name_is_asked_about(tmp_path, odd, beside):
    listed(tmp_path, [["image", "labels"], *LISTED[1:], [NAMES[0], beside + odd]])
    refused(tmp_path, f"is '?{re.escape(odd)}'? (a class|the name of one class)[,?].*--names")
    assert looked_at(tmp_path, names=[odd]).classes == sorted([*CATDOG, odd])


@pytest.mark.parametrize("heads", ["label_1 label_2", "primary_label secondary_labels", "tags keywords", "Species order"])
@pytest.mark.parametrize("form", ["{}", "['{}']", "{};owl"])
def test_of_several_columns_that_could_hold_the_labels_none_is_chosen(tmp_path, heads, form):
    rows = [[name, *(form.format(part) if k and part else part for k, part in enumerate([*labels.split(";"), ""][:2]))]
            for name, labels in LISTED]  # fmt: skip
    first, second = heads.split(" ")
    listed(tmp_path, [["image", first, second], *rows])
    refused(tmp_path, f"which of {first} .*, {second} .* holds the labels", {})
    found = labels_of(looked_at(tmp_path, labels=first, ignore=[second], empty="none"))
    assert found == {name: {labels.split(";")[0]} - {"-"} for name, labels in LISTED}


@pytest.mark.parametrize("rows", [["camera", "Nikon", "Canon"], ["camera,iso,label", "a,100,old", "b,200,new", "c,200,old"]])
def test_a_table_of_something_else_beside_folders_of_labels_is_left_out(tmp_path, rows):
    pictures(tmp_path, OF_FOLDERS)
    write(tmp_path, [row.split(",") for row in rows], "cameras.csv")
    refused(tmp_path, "column image is missing .* where folders are the labels, pass --format folders", {})
    refused(tmp_path, r"not read: .csv \(the first: cameras.csv\)", {"ignore": [".csv"]}, format="folders")
    assert asked(tmp_path, format="folders")[0].classes == CATDOG


@pytest.mark.parametrize("file", ["labels.csv", "a.csv"])
def test_of_a_table_that_names_no_photograph_and_another_none_is_chosen(tmp_path, file):
    listed(tmp_path, [["id", "label"], *([f"{name[:-4]}", label] for name, label in LISTED)], "train data.csv")
    write(tmp_path, [["label", "meaning"], ["cat", "Katze"], ["dog", "Hund"]], file)
    words = {"labels.csv": "column image is missing", "a.csv": r"could be in a.csv \(table\), train data.csv .*--files names"}
    refused(tmp_path, words[file], {})
    assert labels_of(looked_at(tmp_path, files=["train data.csv"])) == MEANT


@pytest.mark.parametrize("form", [1, 2])
def test_a_file_that_is_left_out_is_none_that_a_name_can_mean(tmp_path, form):
    pictures(tmp_path, [f"images/{name}" for name in NAMES])
    write(tmp_path, [["image", "labels"], *([name[: -4 * (form - 1) or None], label] for name, label in LISTED)])
    expected = [*labels_of(looked_at(tmp_path)).values()]
    pictures(tmp_path, [f"masks/{name}" for name in NAMES])
    refused(tmp_path, "could be images/.* or masks/.* leave one of the two out")
    assert [*labels_of(looked_at(tmp_path, ignore=["masks"])).values()] == expected == [*MEANT.values()]


@pytest.mark.parametrize("flat", ["seg_pred/{i}.png", "test/test/{i}.png", "val/{i}.png", "test/{i}.png"])
def test_a_folder_without_labels_is_of_no_label_and_takes_no_split_away(tmp_path, flat):
    splits = {"s": ("seg_train", "seg_test"), "test/t": ("train/train",), "v": ("photos",), "test/{": ("train",)}
    tops = next(tops for start, tops in splits.items() if flat.startswith(start))
    pictures(tmp_path, [f"{split}/{pet}/{split[-5:]}{i}.png" for split in tops for pet in CATDOG for i in range(4)])
    pictures(tmp_path, [flat.format(i=i) for i in range(5)])
    if tops != ("train",):
        refused(tmp_path, "train, val", {})
        return
    raw = looked_at(tmp_path)
    assert raw.classes == CATDOG and [item.id for item in raw.items if item.split == "unlabeled"] == [
        f"test/{i}.png" for i in range(5)
    ]


@given(
    st.permutations(["rgb", "depth", "left", "color"]), st.sets(st.sampled_from(["png", "jpg"]), min_size=1), st.integers(3, 6)
)
def test_versions_of_a_photograph_below_parallel_folders_are_on_one_side(folders, endings, count):
    names = [f"{top}/{pet}/{pet}{i}" for top in folders[:2] for pet in CATDOG for i in range(count)]
    with tempfile.TemporaryDirectory() as root:
        pictures(Path(root), [f"{name}.{sorted(endings)[k % len(endings)]}" for k, name in enumerate(names)])
        raw = looked_at(Path(root), format="folders", label_folder="last", derived="photographs")
    sides = {(Path(item.id).stem, item.split) for item in raw.items}
    assert len(raw.items) == len(names) == 2 * len(sides) and raw.classes == CATDOG


def test_annotations_of_coco_that_are_not_read_are_named_unless_they_are_ignored(tmp_path):
    download(tmp_path)
    for ignored, named in (([], "captions_train2017.json"), (["annotations/captions_train2017.json"], "person_keypoints")):
        (note,) = [note for note in looked_at(tmp_path, ignore=ignored).notes if "are not read" in note]
        assert named in note and ("captions" in note) == (not ignored)
