"""Reading converted sets, whole and damaged."""

import json
import pickle
from contextlib import suppress

import numpy as np
import pytest
import tiny
import torch

from data.raw import photo, small_set
from dicap.data import format as files
from dicap.data.labels import labelled_mask, read_labels
from dicap.data.store import Store
from dicap.errors import DataError


def test_images_come_by_row_in_any_order_and_repeated(tmp_path):
    store = Store.open(small_set(tmp_path))
    rows = np.array([5, 0, 5, 11])
    images = store.read(rows)
    assert images.shape == (4, 3, 24, 24) and images.dtype == torch.uint8
    assert images.is_contiguous(memory_format=torch.channels_last)
    for image, row in zip(images, rows, strict=True):
        expected = np.asarray(photo(row).resize((24, 24), 2))
        assert (image.permute(1, 2, 0).numpy() == expected).all() and (store.image(row) == expected).all()


def test_a_store_knows_its_set_and_no_labels(tmp_path):
    store = Store.open(small_set(tmp_path, n_unlabelled=2))
    assert (store.n, store.image_size, store.classes) == (14, 24, ["c0", "c1", "c2"])
    assert store.ids[0] == "train-000" and files.read_index(store.folder)["width"].to_pylist() == [40] * 14
    assert not [name for name in vars(store) if "label" in name]


def test_a_row_outside_the_set_is_refused(tmp_path):
    store = Store.open(small_set(tmp_path))
    for row in (12, -1):
        with pytest.raises(IndexError):
            store.read(np.array([row]))


def test_a_store_travels_to_another_process_by_its_folder(tmp_path):
    store = Store.open(small_set(tmp_path))
    content = pickle.dumps(store)
    assert len(content) < 1000 and (pickle.loads(content).image(3) == store.image(3)).all()


def _shorten(path):
    path.write_bytes(path.read_bytes()[:-100])


def edit_meta(folder, **changes):
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | changes))


@pytest.mark.promise(
    "A converted set that is damaged or of another schema is never used; one line names the file",
    section="Kills, full disks and damage",
)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "meta.json").unlink(), "is not a converted set"),
        (lambda f: (f / "meta.json").write_text("{"), "meta.json: not readable"),
        (lambda f: edit_meta(f, schema=7), "schema is 7, expected 1"),
        (lambda f: (f / "meta.json").write_text('{"schema": 1}'), "meta.json: dataset: input should be a valid string"),
        (lambda f: edit_meta(f, counts="x"), "meta.json: counts: "),
        (lambda f: edit_meta(f, counts={"train": "x"}), "meta.json: counts: input should be a valid integer"),
        (lambda f: edit_meta(f, image_size=32), "images.npy: holds 12x24x24x3 uint8, meta.json says 12x32x32x3"),
        (lambda f: edit_meta(f, counts={"train": 9, "test": 4, "unlabeled": 0}), "12 rows, meta.json counts 13"),
        (lambda f: (f / "images.npy").unlink(), "images.npy: no such file"),
        (lambda f: _shorten(f / "images.npy"), "images.npy: not readable"),
        (lambda f: np.savez((f / "images.npy").open("wb"), a=np.zeros(3)), "an archive of arrays"),
        (lambda f: _shorten(f / "index.parquet"), "index.parquet: damaged"),
    ],
)
def test_damage_is_one_line_that_names_the_file(tmp_path, damage, message):
    folder = small_set(tmp_path)
    damage(folder)
    with pytest.raises(DataError, match=message) as error:
        Store.open(folder)
    assert "\n" not in str(error.value) and "dicap-stage convert" in str(error.value)


@pytest.mark.promise("Any flipped bit in a page of a converted set's index is noticed", section="Kills, full disks and damage")
def test_no_flipped_bit_in_a_page_of_the_index_changes_what_is_read(tmp_path):
    path = small_set(tmp_path) / "index.parquet"
    before = files.read_index(path.parent)
    for place in range(4, path.stat().st_size // 3, 7):  # behind the pages stand the names of the columns
        tiny.flip(path, place)
        with suppress(DataError):
            assert files.read_index(path.parent).equals(before), place
        tiny.flip(path, place)


def test_labels_are_the_matrix_and_truly_unlabelled_rows_are_refused(tmp_path):
    folder = small_set(tmp_path, n_unlabelled=3)
    column = files.read_index(folder, ["labels"])["labels"].to_pylist()
    rows = np.array([11, 0, 3])
    expected = np.zeros((3, 3), int)
    for i, row in enumerate(rows):
        expected[i, column[row]] = 1
    matrix = read_labels(folder, rows)
    assert matrix.dtype == np.uint8 and (matrix == expected).all()
    assert labelled_mask(folder).tolist() == [True] * 12 + [False] * 3
    with pytest.raises(DataError, match="row 13 has no labels"):
        read_labels(folder, np.array([0, 13]))
    assert read_labels(folder, np.array([], dtype=np.int64)).shape == (0, 3)
