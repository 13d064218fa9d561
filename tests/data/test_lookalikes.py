"""Copies that no checksum tells are said by `init-data` and `convert`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from dicap.data.convert import convert
from dicap.data.lookalikes import folders_of_copies, note_of_lookalikes, thumbnail
from dicap.errors import DataError
from dicap.photos.readers.read import read
from dicap.photos.survey import survey
from dicap.settings import Own

WAYS = {
    "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "smaller": lambda image: image.resize((61, 47)),
    "darker": lambda image: ImageEnhance.Brightness(image).enhance(0.8),
    "a moment later": lambda image: image.crop((1, 1, *image.size)),
}


def scene(seed: int) -> Image.Image:
    """Smooth patches of colour, as photographs have."""
    patches = np.random.default_rng(seed).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    return Image.fromarray(patches).resize((96, 72), Image.Resampling.BICUBIC)


@given(st.lists(st.sampled_from([*WAYS]), min_size=2, max_size=2, unique=True), st.integers(0, 999))
def test_any_copy_looks_like_its_photograph_and_no_other_does(ways, seed):
    image = scene(seed)
    images = [image, *(scene(1000 + seed + i) for i in range(3)), WAYS[ways[0]](WAYS[ways[1]](image))]
    thumbnails = np.stack([*map(thumbnail, images), thumbnail(Image.new("RGB", (9, 9))), thumbnail(Image.new("L", (9, 9), 99))])
    ids, splits = [*"abcdefg"], ["train", "train", "unlabeled", "train", "test", "test", "train"]
    assert ": 1 (the first: e ~ a);" in note_of_lookalikes(ids, splits, thumbnails)[0]
    assert not note_of_lookalikes(ids, ["train"] * 7, thumbnails) and not note_of_lookalikes(ids[1:], splits[1:], thumbnails[1:])


@given(
    st.lists(st.integers(0, 2), min_size=12, max_size=30),
    st.sampled_from([*WAYS][1:]),
    st.sets(st.sampled_from("012")),
    st.integers(0, 9),
)
def test_a_class_made_of_others_is_found_and_no_class_of_a_camera_at_rest(classes, way, made_of, seed):
    labels = ["0", "1", "2", *map(str, classes)]
    photographs = [scene(100 * seed + i) for i in range(len(labels))]
    copies = [WAYS[way](image) for image, c in zip(photographs, labels, strict=True) if c in made_of]
    thumbnails = np.stack([*map(thumbnail, [*photographs, *copies])])
    found = folders_of_copies([*labels, *"3" * len(copies)], thumbnails)
    assert ("3" in found) == (len(copies) > 2) and {*found} <= {"3", *made_of}
    moments = np.stack([thumbnail(image) for image in photographs[:1] * len(labels)])
    assert not folders_of_copies(labels, moments)


@pytest.mark.parametrize("form", ["folders", "last", "table"])
def test_a_folder_of_resized_copies_by_other_names_is_refused(tmp_path, form):
    """Beside folders of labels, with the same folders in it, and unlabelled beside photographs of a table."""
    small, labels = tmp_path / "small", ["image,labels"]
    for i in range(10):
        pet = ("cat", "dog")[i % 2]
        labels.append(f"{pet}/{pet}{i}.png,{pet}")
        for folder, size in (tmp_path / pet, (96, 72)), (small / pet if form == "last" else small, (48, 36)):
            folder.mkdir(parents=True, exist_ok=True)
            scene(i).resize(size).save(folder / f"{folder.name if size[0] > 48 else ''}{i}.png")
    if form == "table":
        (tmp_path / "labels.csv").write_text("\n".join(labels))
    own = Own.model_validate(
        {"label_folder": "last"} if form == "last" else {"unlabeled_root": str(tmp_path)} if form == "table" else {}
    )
    with pytest.raises(DataError, match=r"almost all pictures in .*small.* look like pictures of another.*--derived photographs"):
        survey(tmp_path, own)
    for options, count in ({"ignore": ["small"]}, 10), ({"derived": "photographs"}, 20):
        overview, reading = survey(tmp_path, own.model_copy(update=options))
        assert sum(overview.counts.values()) == count and {*reading.names} - {"small"} == {"cat", "dog"}


def test_init_data_and_convert_say_it(tmp_path):
    for i in range(6):
        place = tmp_path / "photos" / ("test" if i > 3 else "train") / "ab"[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        image = scene(0 if i == 4 else i)
        (WAYS["mirrored"](image) if i == 4 else image).save(place / f"{i}.png")
    seen, reading = survey(tmp_path / "photos", Own())
    meta = convert(read(seen.root, reading), tmp_path / "set", image_size=32, workers=0)
    for notes in (seen.notes, meta["notes"]):
        assert any("look like others" in note and "test/a/4.png ~ train/a/0.png" in note for note in notes)
