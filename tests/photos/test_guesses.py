"""What readers once guessed, in families: each member is read as it was meant, or is a question; never as something else."""

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from dicap.errors import DataError, SettingsError
from dicap.photos.readers.imported import added_before, content_mark
from dicap.photos.readers.question import Question
from dicap.photos.readers.read import read
from dicap.photos.survey import survey
from dicap.settings import Own
from photos.awkward import asked, coco, labels_of, looked_at, picture, pictured, pictures, refused
from photos.test_questions import CATDOG, LISTED, MEANT, NAMES, ONE_HOT, listed
from photos.test_round_trip import WRITERS, Drawn
from stages.photos import init_data, suggest

PETS = {name: pets or {"cat"} for name, pets in MEANT.items()}


def chosen(**controls):
    """An answer of Label Studio: the names that were chosen, by control."""
    return [{"result": [{"from_name": key, "value": {"choices": [*names]}} for key, names in controls.items()]}]


OF_TEXT = [
    {"from_name": "note", "type": "textarea", "value": {"text": ["also a bird"]}},
    {"from_name": "stars", "type": "rating", "value": {"rating": 4}},
]


def test_of_several_controls_and_images_of_label_studio_those_that_count_have_to_be_named(tmp_path):
    pictures(tmp_path, [*NAMES, *(f"thumb/{name}" for name in NAMES)])
    results = {n: [*chosen(what=pets, quality=["blurred"], front=["Yes"])[0]["result"], *OF_TEXT] for n, pets in PETS.items()}
    tasks = [{"data": {"a": n, "b": f"thumb/{n}"}, "annotations": [{"result": one}]} for n, one in results.items()]
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    for classes in (None, ["front"], ["what", "front"], ["wat"]):
        words = r"which controls hold the classes \(front: Yes; quality: blurred; what: cat, dog\)\?.* a column of 0 and 1"
        refused(tmp_path, words, {}, classes=classes)
    refused(tmp_path, r"task 1 names 2 images \(keys a, b\): which is labelled \(init-data --image\)", {}, classes=["what"])
    assert labels_of(looked_at(tmp_path, classes=["what"], image="a", ignore=["thumb"])) == PETS


@pytest.mark.parametrize("annotated", ["ab", "b"])
@pytest.mark.parametrize(
    ("xml", "photo"),
    [
        ("Annotations/{}", "JPEGImages/{}"),
        ("{}", "{}"),
        ("{}/Annotations", "{}/JPEGImages"),
        ("{}/xml", "{}/img"),
        ("labels/{}", "images/{}"),
        ("xml/{}", "{}"),
    ],
)
def test_a_namesake_in_another_folder_has_no_label_of_this_one(tmp_path, xml, photo, annotated):
    for k, name in enumerate(NAMES[:6]):
        for folder in ("a", "b", "."):
            picture(tmp_path / photo.format(folder) / name, 100 * ord(folder) + k)
        for folder in annotated:
            (tmp_path / xml.format(folder)).mkdir(parents=True, exist_ok=True)
            node = f"<object><name>{folder}</name></object><object><name>gone</name><deleted>1</deleted></object>" if k else ""
            text = f"<annotation><filename>{name}</filename>{node}</annotation>"
            (tmp_path / xml.format(folder) / f"{name[:-4]}.xml").write_text(text)
    if "ml" in xml or "labels" in xml:  # no program's own places
        refused(tmp_path, "could be")
        return
    raw = looked_at(tmp_path, derived="photographs")  # else it is asked whether they are copies
    assert {*annotated} == {*raw.classes}
    assert all(f"{label}/" in item.id for item in raw.items for label in labels_of(raw)[item.id] or ())


def cvat(root, parts):
    pictures(root, NAMES)
    nodes = []
    for name, subset in parts.items():
        said = "".join(f'<attribute name="{pet}">{str(pet in MEANT[name]).lower()}</attribute>' for pet in CATDOG)
        tag = f'<tag label="x">{said}</tag>' if subset == "Train" else ""
        nodes.append(f'<image name="{name}" subset="{subset}">{tag}</image>')
    (root / "annotations.xml").write_text(f"<annotations>{''.join(nodes)}</annotations>")


@pytest.mark.parametrize("form", ["names", "matrix", "zeros", "blanks", "coco", "cvat"])
def test_in_a_split_of_which_nothing_is_said_nobody_looked(tmp_path, form):
    train, test = NAMES[:8], NAMES[8:]
    rows, head = (ONE_HOT, CATDOG) if form in ("matrix", "zeros") else (LISTED, ["labels"])
    if form == "coco":
        coco(tmp_path, "train.json", "train", ("a.png", "b.png", "c.png", "e.png"))
        coco(tmp_path, "test.json", "test", ("d.png", "f.png"), annotations=[])
    elif form == "cvat":
        cvat(tmp_path, {name: "Train" if name in train else "Test" for name in NAMES})
    elif form == "blanks":
        said = [[n, p, "train"] if n in train else [n, "", "test"] for n, p in LISTED]
        listed(tmp_path, [["image", "labels", "split"], *said])
    else:
        listed(tmp_path, [["image", *head], *rows[:8]], "train.csv")
        zeros = [0] * len(head) if form == "zeros" else []
        listed(tmp_path, [["image", *head[: len(zeros)]], *([name, *zeros] for name in test)], "test.csv")
    refused(tmp_path, r"--empty none", {"empty": "unlabeled"}, attributes="classes")
    found = labels_of(looked_at(tmp_path, attributes="classes", empty="unlabeled"))
    if form != "coco":
        assert found == {name: pets if name in train else None for name, pets in MEANT.items()}
    assert all(labels is None for name, labels in found.items() if name in ("test/d.png", "test/f.png"))


def put(root, form, labels):
    """Photographs with labels in a folder that is made anew, in one of the forms."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    WRITERS[form](root, Drawn(labels, set(), "utf-8", ",", False, False))


@pytest.mark.parametrize("form", WRITERS)
def test_other_classes_than_init_data_saw_are_a_question(tmp_path, form):
    root, label_of = tmp_path / "photos", {name: {CATDOG[i % 2]} for i, name in enumerate(NAMES)}
    put(root, form, label_of)
    seen, own = survey(root, Own())
    assert read(seen.root, own).classes == own.names == CATDOG
    put(root, form, label_of | {NAMES[0]: {"inbox"}})
    with pytest.raises(DataError, match=r"'inbox': no such class was there when init-data looked.* again"):
        read(seen.root, own)
    assert "inbox" in (survey(root, Own())[1].names or ())
    put(root, form, {name: {"cat"} for name in NAMES})
    with pytest.raises(DataError, match=r"no image is labelled 'dog' any more.* look again -- as it would be read: init-data"):
        read(seen.root, own)


def test_a_name_that_only_photographs_have_that_are_missing_is_no_class(tmp_path):
    listed(tmp_path, [["image", "labels"], *LISTED, ["gone.png", "owl"]])
    raw = looked_at(tmp_path)
    assert raw.classes == CATDOG and any("so they are no classes: owl" in note for note in raw.notes)
    listed(tmp_path, [["image", "cat"], *[row[:2] for row in ONE_HOT], ["Total", "16"]])
    refused(tmp_path, "line 14: ")


@pytest.mark.parametrize("word", ["none", "?", "NA", "0", "sin"])
@pytest.mark.parametrize("form", ["csv", "folders", "label studio"])
def test_words_for_none_are_classes_or_nothing_as_is_said(tmp_path, word, form):
    shown = {name: pets or {word} for name, pets in MEANT.items()}
    put(tmp_path / "photos", form if word.isalpha() or form == "csv" else "label studio", shown)
    for words, meant in (("auto", {word}), ("class", {word}), ("none", set()), ("empty", None)):
        if words == "auto" and word != "sin":
            refused(tmp_path / "photos", r"a class, or does it say nothing.*--words none .*--words empty .*--names", words=words)
            continue
        expected = {name: meant if word in pets and word != "sin" else pets for name, pets in shown.items()}
        found = labels_of(looked_at(tmp_path / "photos", words=words))
        assert {name.rpartition("/")[2]: labels for name, labels in found.items()} == expected


@pytest.mark.parametrize("form", ["files", "rows", "coco", "bare coco"])
def test_a_split_that_is_said_without_labels_is_no_less_said(tmp_path, form):
    whole = [[name, label.replace("-", "cat")] for name, label in LISTED]
    if form == "files":
        listed(tmp_path, [["image", "labels"], *whole], "train.csv")
        listed(tmp_path, [["image"], *([name] for name in NAMES[8:])], "test.csv")
    elif form == "rows":
        said = [[name, label, ""] for name, label in whole] + [[name, "", "test"] for name in NAMES[8:]]
        listed(tmp_path, [["image", "labels", "split"], *said])
    else:
        coco(tmp_path, "train.json", ".", ("a.png", "b.png", "c.png", "e.png"))
        coco(tmp_path, "test.json", ".", ("c.png", "e.png"), annotations=None if form == "bare coco" else [])
    with pytest.raises(DataError, match="with another split; give it one"):
        asked(tmp_path)


@pytest.mark.parametrize("cell", ["cat;dog,bird", "cat;dog|bird", "cat;dog-bird", "cat;dog\\bird", "cat,", "dog;cat,"])
@pytest.mark.parametrize("others", [["cat;bird", "dog"], ["cat", "bird", "dog"]])
def test_each_part_of_a_cell_may_be_several_names(tmp_path, cell, others):
    cells = [cell, *others]
    listed(tmp_path, [["image", "labels"], *([name, cells[i % len(cells)]] for i, name in enumerate(NAMES))])
    refused(tmp_path, "one class or several")
    raw, turns = asked(tmp_path)
    assert set(raw.classes) == {"cat", "dog", "bird"} and turns == 1


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    mark=st.sampled_from([",", " / ", "<br>", "+", " - ", " and ", "|", "、", " ", "-", "_", "<br/>", " -> ", "&"]),
    names=st.sampled_from([[*CATDOG, "owl"], ["3", "5", "13"], ["scab", "apple rust", "rot"]]),
    sets=st.lists(st.sets(st.integers(0, 2), min_size=1), min_size=12, max_size=12),
)
def test_a_mark_between_a_name_and_another_is_one_question_whose_two_answers_read_as_they_say(
    tmp_path_factory, mark, names, sets
):
    sets = [{names[k] for k in some} for some in sets]
    cells = [mark.join(sorted(some)) for some in sets]
    alone = {name for some in sets if len(some) == 1 for name in some}
    is_word = mark.strip() in ("", "-", "_", "and")  # such a mark is asked about if all parts stand alone
    if not any((some <= alone if is_word else some & alone) for some in sets if len(some) > 1) or mark in "".join(names):
        return
    root = tmp_path_factory.getbasetemp() / "marks"
    listed(root, [["image", "labels"], *zip(NAMES, cells, strict=True)])
    with pytest.raises(Question, match="one class or several") as question:
        looked_at(root)
    whole = mark if mark.strip() in ("", "-", "and") else mark.strip()
    assert question.value.options["separator"] == whole
    for separator, meant in ((whole, sets), (";", [{cell} for cell in cells])):
        found = labels_of(looked_at(root, separator=separator))
        assert found == dict(zip(NAMES, meant, strict=True))


@pytest.mark.parametrize("word", ["!dog", "dog?", "No-Dog", "do\u200bg"])
@pytest.mark.parametrize("form", ["csv", "heads", "folders", "label studio"])
def test_a_word_that_a_class_is_not_there_or_in_doubt_is_asked_about(tmp_path, word, form):
    root = tmp_path / "photos"
    if form == "heads":
        listed(root, [["image", "cat", "dog", word], *([*row, i % 2] for i, row in enumerate(ONE_HOT))])
    else:
        put(root, form, {name: {word, "cat"} if i % 2 else {"dog"} for i, name in enumerate(NAMES)})
    refused(root, "the name of one class. Write names alone|no role is known", words="class")
    said = {} if form == "heads" else {"names": [word]}
    assert {*asked(root, **said)[0].classes} - {"cat"} == {"dog", *said.get("names", ())}


@pytest.mark.parametrize("more", ["train_pseudo.csv", "pseudo/train.csv", "predictions.json"])
def test_a_second_file_whose_name_says_more_than_a_split_is_asked_about(tmp_path, more):
    ending = more.rpartition(".")[2]
    if ending == "json":
        coco(tmp_path, "labels.json", ".", ("a.png", "b.png", "c.png", "e.png"))
        coco(tmp_path, more, ".", ("d.png",))
    else:
        listed(tmp_path, [["image", "labels"], *LISTED[:6]], "train.csv")
        listed(tmp_path, [["image", "labels"], *LISTED[6:]], more)
    refused(tmp_path, rf"the labels could be in .*{more} .*--files names those to read", {})
    first = "labels.json" if ending == "json" else "train.csv"
    assert looked_at(tmp_path, files=[first]).classes and looked_at(tmp_path, files=[first, more]).classes


@pytest.mark.parametrize("numbers", [[0, 0, 1, 1, 2], [0, 1, 2], [1, 1, 0, 3], [1, 2, 1, 3]])
def test_classes_by_their_numbers_are_labels(tmp_path, numbers):
    listed(tmp_path, [["image", "label"], *([name, numbers[i % len(numbers)]] for i, name in enumerate(NAMES))])
    raw, turns = asked(tmp_path)
    assert raw.classes == sorted({*map(str, numbers)}) and turns == 0


def test_answers_of_a_model_are_no_labels(tmp_path):
    listed(tmp_path / "table", [["image", "label"], *([name, "dog"] for name in NAMES)], "my_predictions.csv")
    entries = [{"image_id": i, "category_id": 10 + i % 3, "score": 0.4} for i in range(4)]
    coco(tmp_path / "coco", "train.json", ".", ("a.png", "b.png", "c.png", "e.png"), annotations=entries)
    for form in ("table", "coco"):
        refused(tmp_path / form, "a model's answers")
    assert asked(tmp_path / "table")[0].classes == ["dog"]
    assert looked_at(tmp_path / "coco", ignore=["score"]).classes == ["cat", "dog", "owl"]


def test_each_key_of_coco_has_a_role(tmp_path):
    images = [{"id": i, "file_name": f"{letter}.png", "split": "test" if i > 1 else "train", "seq_id": i // 2, "night": i % 2}
              for i, letter in enumerate("abcde")]  # fmt: skip
    entries = [{"image_id": i, "category_id": 10 + i % 3} for i in range(3)]
    entries[0]["attributes"] = {"occluded": False, "young": "true"}
    coco(tmp_path, "all.json", ".", images=images, annotations=entries)
    refused(
        tmp_path,
        r"split, seq_id, night have no role; .*--split.*--group.*attributes .young.",
        {"split": "split", "group": "seq_id", "ignore": ["night"], "attributes": "classes"},
    )
    raw = asked(tmp_path, empty="none", split="split", group="seq_id")[0]
    assert [item.split for item in raw.items] == ["train"] * 2 + ["test"] * 3 and raw.classes == ["cat", "dog", "owl", "young"]
    assert raw.items[0].group == raw.items[1].group is not None


def test_each_key_of_a_task_of_label_studio_has_a_role(tmp_path):
    pictures(tmp_path, NAMES)
    told = [{"split": "test" if i > 7 else "train", "patient": i // 2, "night": i % 2} for i in range(12)]
    tasks = [{"data": {"image": n, **more}, "annotations": chosen(what=PETS[n])} for n, more in zip(NAMES, told, strict=True)]
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    refused(tmp_path, r"keys night, patient, split have no role", {"split": "split", "group": "patient", "ignore": ["night"]})
    items = asked(tmp_path, split="split", group="patient")[0].items
    assert [item.split for item in items] == ["train"] * 8 + ["test"] * 4
    assert all((one.group == other.group) == (i // 2 == k // 2) for i, one in enumerate(items) for k, other in enumerate(items))


@pytest.mark.parametrize(
    ("cells", "match"),
    [
        *(([one, "owl"], "one class. Write") for one in ("cat (0.9)", "cat 9%", "cat (2);dog (1)", "2x cat", "a/0.91", "a:0.2")),
        *(([bits, "0 1 1"], "one class. Write") for bits in ("1 0 1", "101", "[1, 0]", "1,0", "[1.0, 0.0]")),
        *(([one, "dog"], "one class. Write") for one in ("[cat]", "{cat}", "'cat", "[cat;dog]", "('cat', 'dog')", "{'a': 'b'}")),
        *((some.split("|"), "proposed reading") for some in ("cat, dog|dog / cat|cat|dog", "cat and dog|dog, cat|cat|dog")),
        (["fox, bear", "cat;dog"], "init-data --separator ';'"),
        (["fox、bear", "cat;dog"], "init-data --separator ';'"),
        (["red_car-blue_car", "red_car;blue_car"], r"init-data --separator -"),
        (["R&B", "AC/DC"], "init-data --separator ';'"),
    ],
)
def test_scores_and_a_comma_beside_semicolons_are_asked_about(tmp_path, cells, match):
    listed(tmp_path, [["image", "labels"], *([name, cells[i % len(cells)]] for i, name in enumerate(NAMES))])
    for separator in ("auto", ";") if "Write" in match else ("auto",):
        refused(tmp_path, match, separator=separator)
    if "separator" in match:
        raw, _ = asked(tmp_path)
        assert raw.classes in (["cat", "dog", cells[0]], ["blue_car", "red_car"], sorted(cells))


def test_imported_labels_that_were_cut_are_not_read(tmp_path):
    text = b"image,labels\na.png,cat\nb.png,dog\n"
    path = tmp_path / f"added-{content_mark(text)}.csv"
    for end in range(len(text) + 1):
        path.write_bytes(text[:end])
        if end == len(text):
            whole = added_before(path)
            path.write_bytes(text.replace(b"\n", b"\r\n"))  # as Git may write it
            assert added_before(path) == whole and len(whole) == 2
        else:
            with pytest.raises(DataError, match="not as import-labels wrote it"):
                added_before(path)


@pytest.mark.parametrize(
    ("rows", "files", "match"),
    [
        ([["image", *CATDOG], *([n, *("ny"[v] for v in row)] for n, *row in ONE_HOT)], {}, ""),
        ([["image", "labels"]], {}, "no rows; list the images"),
        ([["image", *CATDOG], *ONE_HOT], {"counts.txt": "cat 3", "more.txt": "dog 3"}, "--ignore .txt"),
        ([["image", *CATDOG], *ONE_HOT], {"sample_submission.csv": "image,cat,dog\nx.png,0,0\n"}, "--files names those to read"),
    ],
)
def test_a_remedy_is_one_that_can_be_followed(tmp_path, rows, files, match):
    listed(tmp_path, rows, "train.csv")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    if match:
        refused(tmp_path, match)
    if rows[1:]:
        said = {"files": ["train.csv"]} if "--files" in match else {}
        assert labels_of(asked(tmp_path, **said)[0]) == MEANT


def test_what_cannot_be_meant_is_refused_before_anything_is_done(tmp_path):
    (tmp_path / "params.yaml").write_text("own: 3\n")
    with pytest.raises(SettingsError, match="own: found 3, expected a section"):
        init_data._added(tmp_path / "params.yaml", tmp_path)
    said = CliRunner().invoke(suggest.command, [str(tmp_path), "--out", str(tmp_path)])
    assert "is the folder of the photographs" in str(said.exception or said.output) and list(tmp_path.iterdir()) == [
        tmp_path / "params.yaml"
    ]


@pytest.mark.parametrize("word", ["none", "?", "n/a"])
def test_a_word_for_nothing_among_absent_classes_alone_is_answered_for_convert_too(tmp_path, word):
    rows = [[name, "cat" if i % 2 else "dog", (word, "dog" if i % 2 else "cat")[i > 2]] for i, name in enumerate(NAMES)]
    listed(tmp_path, [["image", "labels", "absent"], *rows])
    _, reading = survey(tmp_path, Own(test_share=0.3))
    assert {*read(tmp_path, reading).classes} == {*CATDOG}


@pytest.mark.parametrize(
    "folders", [("train", "test", "extra"), ("train_images", "test_images", "raw"), ("x_train", "x_test", ".")]
)
@given(where=st.lists(st.integers(0, 2), min_size=6, max_size=6).filter(lambda where: {0, 1} <= {*where}))
def test_folders_are_the_splits_if_nothing_lies_beside_them(folders, where):
    with tempfile.TemporaryDirectory() as place:
        names = [f"{folders[i]}/{name}" for i, name in zip(where, NAMES, strict=False)]
        root = pictured(Path(place), [["image", "labels"], *([name, CATDOG[i % 2]] for i, name in enumerate(names))])
        if 2 in where:
            refused(root, "which split is it of. Write a column split, or name its folder")
            return
        splits = {item.path: item.split for item in looked_at(root).items}
        assert splits == {name: ("train", "test")[i] for i, name in zip(where, names, strict=True)}


@pytest.mark.parametrize("labels", ["below", "above"])
@given(
    above=st.sampled_from(["", "images/", "Bilder/v 1/"]),
    affixes=st.sampled_from(["{0}", "{0}2017", "x_{0}", "{0}-images", "{0}/{0}"]),
    words=st.sampled_from(["train test", "Training Testing", "train val", "TRAIN TEST"]),
    beside=st.sampled_from(["", "", "owl/owl.png", "owl/cat/owl.png"]),
)
def test_folders_named_as_splits_are_the_splits_and_others_are_refused(labels, above, affixes, words, beside):
    names = {}
    for i, name in enumerate(NAMES[:6]):
        split, label = affixes.format(words.split()[i // 4]), CATDOG[i % 2]
        path = f"{above}{split}/{label}/{name}" if labels == "below" else f"{above}{label}/{split}/{name}"
        names[path] = ("train", "test")[i // 4], label
    with tempfile.TemporaryDirectory() as place:
        pictures(Path(place), [*names, *[above + beside] * bool(beside)])
        if affixes != "{0}" or beside:
            refused(Path(place), "train, val", {})
            if labels == "below" and not above and "/" not in affixes:  # folders of splits are labels where that is said
                folders = [affixes.format(word) for word in words.split()]
                raw = looked_at(Path(place), names=folders, label_folder="first", format="folders")
                assert raw.classes == sorted([*folders, *["owl"] * bool(beside)])
            return
        raw = looked_at(Path(place))
        assert {item.path: (item.split, raw.classes[item.labels[0]]) for item in raw.items} == names


@pytest.mark.parametrize("beside", ["car", "bus/x"])
def test_a_label_by_the_name_of_a_split_is_named_as_one(tmp_path, beside):
    pictures(tmp_path, [f"{folder}/{folder[:1]}{name}" for folder in ("train", "owl", beside) for name in NAMES[:4]])
    refused(tmp_path, "--names train if train is a label", {}, label_folder="first")
    raw = looked_at(tmp_path, label_folder="first", names=["train"])
    assert raw.classes == sorted(["train", "owl", beside.partition("/")[0]])
