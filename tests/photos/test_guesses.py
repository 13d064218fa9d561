"""What readers once guessed, in families: each member is read as it was meant, or is a question; never as something else."""

import json
import shutil
import subprocess

import pytest
from click.testing import CliRunner

from dicap.errors import DataError, SettingsError
from dicap.photos.readers.listing import typed
from dicap.photos.readers.read import added_before, content_mark, read, read_added
from dicap.photos.survey import survey
from dicap.settings import Own
from photos.awkward import coco, label_studio, looked_at, picture, pictures
from photos.test_questions import CATDOG, LISTED, MEANT, NAMES, ONE_HOT, asked, labels_of, write
from stages.photos import init_data, suggest

PETS = {name: pets or {"cat"} for name, pets in MEANT.items()}


def chosen(**controls):
    """An answer of Label Studio: the names that were chosen, by control."""
    return [{"result": [{"from_name": key, "value": {"choices": [*names]}} for key, names in controls.items()]}]


@pytest.mark.parametrize(
    "answer",
    [
        lambda pets: chosen(what=pets, quality=["blurred"]),
        lambda pets: chosen(quality=["sharp"], what=pets),
        lambda pets: chosen(**{name: ["Yes" if name in pets else "No"] for name in CATDOG}),
    ],
)
def test_of_several_controls_and_images_of_label_studio_one_is_asked_for(tmp_path, answer):
    pictures(tmp_path, [*NAMES, *(f"thumb/{name}" for name in NAMES)])
    tasks = [{"data": {"photo": n, "preview": f"thumb/{n}"}, "annotations": answer(pets)} for n, pets in PETS.items()]
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    raw, turns = asked(tmp_path)
    assert labels_of(raw) == PETS and turns == 2


def test_a_control_without_an_answer_says_nothing_of_its_class(tmp_path):
    marks = [{"cat": ["yes"]}, {"cat": ["yes"], "dog": ["no"]}, {"cat": ["no"], "dog": ["yes"]}, {"dog": ["yes"]}]
    label_studio({name: chosen(**marks[i % 4]) for i, name in enumerate(NAMES)}, NAMES)(tmp_path)
    assert [item.absent for item in asked(tmp_path)[0].items][:4] == [(), None, None, ()]


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
        with pytest.raises(DataError, match="could be"):
            looked_at(tmp_path, Own(test_share=0.3))
        return
    raw = looked_at(tmp_path, Own(test_share=0.3))
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
        write(tmp_path, [["image", "labels", "split"], *said])
    else:
        write(tmp_path, [["image", *head], *rows[:8]], "train.csv")
        zeros = [0] * len(head) if form == "zeros" else []
        write(tmp_path, [["image", *head[: len(zeros)]], *([name, *zeros] for name in test)], "test.csv")
    if form == "zeros":
        with pytest.raises(DataError, match=r"own\.empty to none or to unlabeled"):
            looked_at(tmp_path, Own())
    options = {"empty": "unlabeled"} if form == "zeros" else {}
    found = labels_of(looked_at(tmp_path, Own.model_validate({"test_share": 0.3, "attributes": "classes"} | options)))
    if form != "coco":
        assert found == {name: pets if name in train else None for name, pets in MEANT.items()}
    assert all(labels is None for name, labels in found.items() if name in ("test/d.png", "test/f.png"))


@pytest.mark.parametrize("cell", ["[{0}, {1}]", "{0} {1}", "{0}{1}", "{0},{1}", "[{0}.0, {1}.0]"])
def test_a_list_of_0_and_1_names_no_classes(tmp_path, cell):
    rows = [[name, cell.format(*bits)] for name, *bits in ONE_HOT]
    write(tmp_path, [["image", "labels"], *rows])
    for separator in ("auto", ";", " ", ","):
        with pytest.raises(DataError, match=r"labels: (is .* a class|is .* one class or several|found )"):
            looked_at(tmp_path, Own(test_share=0.3, separator=separator))


@pytest.mark.parametrize("form", ["folder", "voc", "table"])
def test_a_class_that_comes_after_init_data_is_a_question(tmp_path, form):
    node = "<annotation><filename>{}</filename><object><name>{}</name></object></annotation>"
    if form == "folder":
        pictures(tmp_path, [f"{'cat' if i % 2 else 'dog'}/{name}" for i, name in enumerate(NAMES)])
    else:
        write(tmp_path, [["image", "labels"], *LISTED])
    if form == "voc":
        (tmp_path / "labels.csv").unlink()
        for name in NAMES[:8]:
            (tmp_path / f"{name[:-4]}.xml").write_text(node.format(name, "cat"))
    found, own = survey(tmp_path, Own())
    assert [name for name, *_ in found.classes] == [*read(found.root, own).classes] or form == "folder"
    if form == "folder":
        picture(tmp_path / "inbox" / "x.png", 99)
    elif form == "voc":
        (tmp_path / "11.xml").write_text(node.format("11.png", "inbox"))
    else:
        write(tmp_path, [["image", "labels"], *LISTED[:-1], [NAMES[-1], "inbox"]])
    with pytest.raises(DataError, match=r"'inbox': no such class was there when init-data looked.* init-data .* again"):
        read(found.root, own)
    assert "inbox" in (survey(tmp_path, Own())[1].names or ())


@pytest.mark.parametrize("form", ["folder", "one-hot", "table", "imported"])
def test_a_class_that_is_lost_after_init_data_is_refused(tmp_path, form):
    added = None
    if form == "folder":
        pictures(tmp_path, [f"{'cat' if i % 2 else 'dog'}/{name}" for i, name in enumerate(NAMES)])
    elif form == "one-hot":
        write(tmp_path, [["image", *CATDOG], *ONE_HOT])
    else:
        write(tmp_path, [["image", "labels"], *LISTED])
    if form == "imported":
        added = tmp_path / "more.txt"
        added.write_text(f"image,labels\n{NAMES[0]},owl\n")
    found, own = survey(tmp_path, Own(added=added and str(added), ignore=["more.txt"]))
    assert read(found.root, own).classes == [*CATDOG, *["owl"] * (form == "imported")]
    if form == "folder":
        shutil.rmtree(tmp_path / "dog")
    elif form == "one-hot":
        write(tmp_path, [["image", *CATDOG], *([name, cat, 0] for name, cat, _ in ONE_HOT)])
    elif form == "table":
        write(tmp_path, [["image", "labels"], *([name, "cat" if "cat" in pets else "-"] for name, pets in MEANT.items())])
    else:
        own = own.model_copy(update={"added": None})
    with pytest.raises(DataError, match=r"no image is labelled '(dog|owl)' any more.* init-data .* again"):
        read(found.root, own)


def test_a_name_that_only_missing_photographs_have_is_no_class(tmp_path):
    write(tmp_path, [["image", "labels"], *LISTED, ["Total", "200"]])
    raw = looked_at(tmp_path, Own(test_share=0.3))
    assert raw.classes == CATDOG and any("only missing images have, which are no classes: 200" in note for note in raw.notes)


@pytest.mark.parametrize("text", [",", "\\", "\xa0", " and ", "\t", "a'b", "、", "; $x"])
def test_an_option_that_is_named_can_be_typed(text):
    said = subprocess.run(
        ["bash", "-c", f"printf %s {typed(text)}"], env={"LC_ALL": "C.UTF-8"}, stdout=subprocess.PIPE, check=True
    )
    assert said.stdout.decode() == text and typed(text).isprintable()


@pytest.mark.parametrize("word", ["none", "Nothing", "--", "?", "unknown", "n/a", "NA", "0", "sin", "kein"])
@pytest.mark.parametrize("form", ["table", "folders", "label studio"])
def test_words_for_none_are_classes_or_nothing_as_is_said(tmp_path, word, form):
    shown = {name: pets or {word} for name, pets in MEANT.items()}
    if form == "table":
        write(tmp_path, [["image", "labels"], *([name, ";".join(pets)] for name, pets in shown.items())])
    elif form == "folders" and word.isalpha():
        shown = {name: {min(pets)} for name, pets in shown.items()}
        pictures(tmp_path, [f"{min(pets)}/{name}" for name, pets in shown.items()])
    else:
        label_studio({name: chosen(what=pets) for name, pets in shown.items()}, NAMES)(tmp_path)
    for words, meant in (("auto", {word}), ("class", {word}), ("none", set()), ("empty", None)):
        options = Own.model_validate({"test_share": 0.3, "words": words})
        if words == "auto" and word != "sin":
            with pytest.raises(DataError, match=r"a class, or an empty cell, or .*own\.words class"):
                looked_at(tmp_path, options)
            continue
        expected = {name: meant if word in pets and word != "sin" else pets for name, pets in shown.items()}
        found = {name.rpartition("/")[2]: labels for name, labels in labels_of(looked_at(tmp_path, options)).items()}
        assert found == expected


@pytest.mark.parametrize("form", ["files", "rows", "coco", "bare coco"])
def test_a_split_that_is_said_without_labels_is_no_less_said(tmp_path, form):
    whole = [[name, label.replace("-", "cat")] for name, label in LISTED]
    if form == "files":
        write(tmp_path, [["image", "labels"], *whole], "train.csv")
        write(tmp_path, [["image"], *([name] for name in NAMES[8:])], "test.csv")
    elif form == "rows":
        said = [[name, label, ""] for name, label in whole] + [[name, "", "test"] for name in NAMES[8:]]
        write(tmp_path, [["image", "labels", "split"], *said])
    else:
        for split, names in (("train", ("a.png", "b.png", "c.png", "e.png")), ("test", ("c.png", "e.png"))):
            coco(tmp_path, f"{split}.json", ".", names)
            content = json.loads((tmp_path / f"{split}.json").read_text())
            if split == "test":
                content |= {"annotations": []}
            if form == "bare coco" and split == "test":
                del content["annotations"]
            (tmp_path / f"{split}.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="with another split; give it one"):
        asked(tmp_path)


@pytest.mark.parametrize(
    "cell",
    [
        *("cat;dog,bird", "cat;dog|bird", "cat;dog / bird", "cat;dog and bird", "cat and dog", "cat und dog", "cat,", "dog;cat,"),
        *("cat;dog-bird", "cat;dog\\bird", "cat;dog\xa0bird"),
    ],
)
@pytest.mark.parametrize("others", [["cat;bird", "dog"], ["cat", "bird", "dog"]])
def test_each_part_of_a_cell_may_be_several_names(tmp_path, cell, others):
    cells = [cell, *others]
    write(tmp_path, [["image", "labels"], *([name, cells[i % len(cells)]] for i, name in enumerate(NAMES))])
    with pytest.raises(DataError, match="one class or several"):
        looked_at(tmp_path, Own(test_share=0.3))
    raw, turns = asked(tmp_path)
    assert set(raw.classes) == {"cat", "dog", "bird"} and turns == 1


@pytest.mark.parametrize("word", ["!dog", "-dog", "no dog", "not dog", "~dog", "dog?", "No-Dog", "without dog"])
@pytest.mark.parametrize("form", ["table", "cells", "heads", "folders", "label studio"])
def test_a_word_that_a_class_is_not_there_or_in_doubt_is_asked_about(tmp_path, word, form):
    shown = {name: {word, "cat"} if i % 2 and form == "cells" else {word} if i % 2 else {"dog"} for i, name in enumerate(NAMES)}
    if form in ("table", "cells"):
        write(tmp_path, [["image", "labels"], *([name, ";".join(pets)] for name, pets in shown.items())])
    elif form == "heads":
        write(tmp_path, [["image", "cat", "dog", word], *([*row, i % 2] for i, row in enumerate(ONE_HOT))])
    elif form == "folders":
        pictures(tmp_path, [f"{min(pets)}/{name}" for name, pets in shown.items()])
    else:
        label_studio({name: chosen(what=pets) for name, pets in shown.items()}, NAMES)(tmp_path)
    with pytest.raises(DataError, match=r"not there, or is doubtful|has no role that is known"):
        looked_at(tmp_path, Own(test_share=0.3))
    if form == "heads":
        assert asked(tmp_path)[0].classes == CATDOG
    else:
        assert {word, "dog"} <= {*looked_at(tmp_path, Own(test_share=0.3, words="class")).classes}


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("labels.csv", "image,labels\n00.png,cat\n01.png,dog\nimage,labels\n02.png,cat\n", "line 4: the heads a second time"),
        ("labels.csv", "image , labels\n00.png,cat\n01.png,dog\nimage,labels\n", "line 4: the heads a second time"),
    ],
)
def test_a_head_that_comes_again_is_no_row(tmp_path, name, text, match):
    pictures(tmp_path, NAMES)
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=match):
        looked_at(tmp_path, Own(test_share=0.3))


@pytest.mark.parametrize(
    "more", ["train_pseudo.csv", "predictions_test.csv", "pseudo/train.csv", "train_old.csv", "predictions.json"]
)
def test_a_second_file_whose_name_says_more_than_a_split_is_asked_about(tmp_path, more):
    ending = more.rpartition(".")[2]
    if ending == "json":
        coco(tmp_path, "labels.json", ".", ("a.png", "b.png", "c.png", "e.png"))
        coco(tmp_path, more, ".", ("d.png",))
    else:
        write(tmp_path, [["image", "labels"], *LISTED[:6]], "train.csv")
        write(tmp_path, [["image", "labels"], *LISTED[6:]], more)
    with pytest.raises(DataError, match=f"{more} is named otherwise than .* init-data .*--ignore {more}"):
        looked_at(tmp_path, Own(test_share=0.3))
    first = "labels.json" if ending == "json" else "train.csv"
    assert asked(tmp_path)[0].classes and looked_at(tmp_path, Own(test_share=0.3, files=[first, more])).classes


@pytest.mark.parametrize(
    "names", [["train.csv", "test_labels.csv"], ["train/labels.csv", "test/labels.csv"], ["train2017.csv", "val2017.csv"]]
)
def test_files_of_splits_are_no_question(tmp_path, names):
    for name, rows in zip(names, (LISTED[:8], LISTED[8:]), strict=True):
        write(tmp_path, [["image", "labels"], *rows], name)
    assert {item.split for item in looked_at(tmp_path, Own(test_share=0.3)).items} == {"train", "test"}


@pytest.mark.parametrize("numbers", [[0, 0, 1, 1, 2], [0, 1, 2], [1, 1, 0, 3]])
def test_classes_by_their_numbers_are_labels(tmp_path, numbers):
    write(tmp_path, [["image", "label"], *([name, numbers[i % len(numbers)]] for i, name in enumerate(NAMES))])
    raw, turns = asked(tmp_path)
    assert raw.classes == sorted({*map(str, numbers)}) and turns == 1


def test_answers_of_a_model_in_coco_are_no_labels(tmp_path):
    coco(tmp_path, "train.json", ".", ("a.png", "b.png", "c.png", "e.png"))
    coco(tmp_path, "more.json", ".", ("d.png", "f.png"))
    content = json.loads((tmp_path / "train.json").read_text())
    content["annotations"] = [entry | {"score": 0.4} for entry in content["annotations"]]
    (tmp_path / "train.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="a model's answers; leave the file out"):
        looked_at(tmp_path, Own(test_share=0.3, files=["train.json"]))


@pytest.mark.parametrize("head", ["value", "confidence", "not_labels", "split", "Value"])
def test_a_column_that_import_labels_does_not_know_is_refused(tmp_path, head):
    (tmp_path / "more.csv").write_text(f"image,labels,{head}\n00.png,cat,0\n")
    with pytest.raises(DataError, match=f"column {head.lower()} is none that import-labels reads"):
        read_added(tmp_path / "more.csv", ["cat"], NAMES)
    (tmp_path / "more.csv").write_text("Image,Labels,Absent,model_says,surprise,look_at\n00.png,cat,*,dog,0.1,dog\n")
    assert read_added(tmp_path / "more.csv", ["cat"], NAMES)["00.png"].labels == ["cat"]


@pytest.mark.parametrize(
    ("cells", "match"),
    [
        (["cat:0.9", "dog:0.25;cat:0.5"], "one and its score"),
        (["cat (0.9)", "dog (0.8)"], "one and its score"),
        (["cat 90%", "dog 8%"], "one and its score"),
        *(
            (cells, "one and its score or count")
            for cells in (["cat (2);dog (1)", "dog (1)"], ["cat: 2", "dog: 1"], ["2x cat", "dog"])
        ),
        *((cells, "one and its score or count") for cells in (["2 x cat", "dog"], ["dog:91", "cat"], ["dog/0.91", "cat"])),
        *(([bits, "[0 1 1]"], "0 and 1 of several") for bits in ("[1 0 1]", "[1. 0. 1.]")),
        *(([one, "dog"], "a name within marks") for one in ("[cat]", "{cat}", "'cat'", '"cat"', "[cat;dog]")),
        (["fox, bear", "cat;dog"], r"own\.separator ','"),
        (["fox、bear", "cat;dog"], r"own\.separator '、'"),
    ],
)
def test_scores_and_a_comma_beside_semicolons_are_asked_about(tmp_path, cells, match):
    write(tmp_path, [["image", "labels"], *([name, cells[i % 2]] for i, name in enumerate(NAMES))])
    with pytest.raises(DataError, match=match):
        looked_at(tmp_path, Own(test_share=0.3))
    if "separator" in match:
        raw, _ = asked(tmp_path)
        assert raw.classes == ["bear", "cat", "dog", "fox"]


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
        ([["image", *CATDOG], *([n, *("+-"[v] for v in row)] for n, *row in ONE_HOT)], {}, "same two values .*write 1 and 0"),
        ([["cat", 1, 2, NAMES[0], 9], *(["dog", 1, 2, n, 9] for n in NAMES)], {}, "write `labels,x2,x3,image,x5`"),
        ([["image", "labels"]], {}, "no rows; list the images"),
        ([["image", *CATDOG], *ONE_HOT], {"sample_submission.csv": "image,cat,dog\nx.png,0,0\n"}, "--ignore sample_submission"),
        ([], {f"ann/{n}.json": "{}" for n in NAMES}, "most photographs have one, and labels may be in them"),
        ([], {f"img/{n[:-4]}.txt": "0 .5 .5 .1 .1" for n in NAMES}, "most photographs have one, and labels may be in them"),
    ],
)
def test_a_remedy_is_one_that_can_be_followed(tmp_path, rows, files, match):
    pictures(tmp_path / ("img" if not rows else "."), NAMES)
    if rows:
        write(tmp_path, rows, "train.csv")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    if match:
        with pytest.raises(DataError, match=match):
            looked_at(tmp_path, Own(test_share=0.3))
    if not match or "--ignore" in match:
        assert labels_of(asked(tmp_path)[0]) == MEANT


def test_what_cannot_be_meant_is_refused_before_anything_is_done(tmp_path):
    (tmp_path / "params.yaml").write_text("own: 3\n")
    with pytest.raises(SettingsError, match="own: found 3, expected a section"):
        init_data._added(tmp_path / "params.yaml", tmp_path, None)
    said = CliRunner().invoke(suggest.command, [str(tmp_path), "--out", str(tmp_path)])
    assert "is the folder of the photographs" in str(said.exception or said.output) and list(tmp_path.iterdir()) == [
        tmp_path / "params.yaml"
    ]
