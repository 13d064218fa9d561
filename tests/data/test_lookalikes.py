"""Copies that no checksum tells are said by `init-data` and `convert`."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from dicap.data.convert import convert
from dicap.data.lookalikes import note_of_lookalikes, thumbnail
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


@given(st.integers(0, 999), st.integers(150, 900), st.integers(150, 900))
def test_a_photograph_of_any_size_looks_like_its_mirror_image(seed, width, height):
    image = scene(seed).resize((width, height))
    assert (thumbnail(image)[:, ::-1] * thumbnail(WAYS["mirrored"](image))).sum() > 0.995


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
