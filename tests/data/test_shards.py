"""Sets in shards: which rows go where, what is made again after a change, reading, damage, kills."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.raw import raw_set, save
from dicap.data import format as files
from dicap.data.chained import Chained
from dicap.data.convert import Plan, convert, convert_shard
from dicap.data.doctor import examine
from dicap.data.kept import KEPT_DAYS, Kept
from dicap.data.labels import labelled_mask, read_labels
from dicap.data.shards import cuts
from dicap.data.sources.base import FileImages, Item, RawSet
from dicap.data.sources.columns import Items
from dicap.data.store import Store
from dicap.data.texts import Texts
from dicap.errors import DataError

SIZE = 20  # images of a shard


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def made(root: Path, raw: RawSet, name: str = "set", **options) -> Path:
    """The set in shards; `name` says where, shards are kept beside all of them."""
    convert(raw, root / name, image_size=8, shard_size=SIZE, **{"workers": 0, "kept": root / "kept"} | options)
    return root / name


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> RawSet:
    """160 images, some truly unlabelled."""
    return raw_set(tmp_path_factory.mktemp("raw"), n_train=120, n_test=30, n_unlabeled=10)


def with_item(raw: RawSet, root: Path, at: int, name: str) -> RawSet:
    """The set with one image more; its file lies with the others."""
    folder = raw.images._root  # type: ignore[attr-defined]
    save(folder / f"{name}.png", 1000)
    items = [*raw.items[:at], Item(name, f"{name}.png", "train", (1,)), *raw.items[at:]]
    return replace(raw, items=items, images=FileImages(folder, [item.path for item in items]))


# -- which rows ---------------------------------------------------------------------------------------------------------


def slow_cuts(ids, size):
    """By the definition: an id begins a shard if its hash is the lowest within half a size, and both ends are so far away."""
    from dicap.data.shards import _hash

    half, hashes, begins = max(size // 2, 1), [_hash(name) for name in ids], [0]
    for i in range(len(ids)):
        near = hashes[max(i - half, 0) : i + half + 1]
        if hashes[i] == min(near) and half <= i <= len(ids) - half:
            begins.append(i)
    return [range(a, b) for a, b in zip(begins, [*begins[1:], len(ids)], strict=True)]


@given(st.lists(st.text(max_size=4), unique=True, min_size=1, max_size=120), st.integers(1, 30))
def test_the_cuts_are_as_defined_and_hold_every_row_once(ids, size):
    found = cuts(ids, size)
    assert found == slow_cuts(ids, size)
    assert [row for rows in found for row in rows] == list(range(len(ids)))
    assert len(found) == 1 or min(map(len, found)) >= max(size // 2, 1)


def test_shards_are_a_size_long_on_average():
    lengths = [len(rows) for rows in cuts((f"image {i}" for i in range(60_000)), 500)]
    assert 450 < np.mean(lengths) < 550 and max(lengths) < 2500


def test_one_image_more_or_less_changes_one_shard():
    """Of two thousand places, all but the few at which the image moves a border."""
    ids, size = [f"image {i}" for i in range(6000)], 500

    def shards(names):
        return {tuple(names[row] for row in rows) for rows in cuts(names, size)}

    before, rng, changed = shards(ids), np.random.default_rng(0), []
    for number, at in enumerate(rng.integers(0, len(ids), 100).tolist()):
        changed.append(len(shards([*ids[:at], f"new {number}", *ids[at:]]) - before))
        changed.append(len(shards([*ids[:at], *ids[at + 1 :]]) - before))
    assert np.mean(np.array(changed) == 1) > 0.97 and max(changed) <= 3


# -- converting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["array", "jpeg"])
def test_a_set_in_shards_is_read_as_that_of_one_file(tmp_path, raw, store):
    whole = tmp_path / "whole"
    expected = convert(raw, whole, image_size=8, store=store, workers=0)
    meta = convert(raw, tmp_path / "set", image_size=8, store=store, shard_size=SIZE, workers=0)
    assert meta["schema"] == 3 and len(meta["shards"]) > 3 and sum(meta["shards"]) == 160
    same = ("dataset", "classes", "counts", "rejected", "hidden_labels", "notes", "source", "image_size", "store")
    assert all(meta[key] == expected[key] for key in same) and meta.get("fidelity") == expected.get("fidelity")
    one, several = Store.open(whole), Store.open(tmp_path / "set")
    rows = np.random.default_rng(0).permutation(np.concatenate([np.arange(one.n), [7, 7, 159]]))
    assert (one.pixels(rows) == several.pixels(rows)).all() and (one.read(rows) == several.read(rows)).all()
    assert (one.image(33) == several.image(33)).all() and several.pixels(np.array([], int)).shape == (0, 8, 8, 3)
    assert (one.resident(torch.device("cpu")) == several.resident(torch.device("cpu"))).all()
    assert (one.ids == several.ids).all() and one.index.equals(several.index)
    known = np.flatnonzero(labelled_mask(whole))
    assert (labelled_mask(whole) == labelled_mask(tmp_path / "set")).all()
    assert (read_labels(whole, known[::-1]) == read_labels(tmp_path / "set", known[::-1])).all()
    for row in (-1, several.n):
        with pytest.raises(IndexError, match=f"row {row} is outside the set's 160 images"):
            several.pixels(np.array([0, row]))
    assert not examine(tmp_path / "set").damage


def test_a_shard_is_like_a_set_of_its_own(tmp_path, raw):
    store = Store.open(made(tmp_path, raw))
    first = 0
    for number, count in enumerate(store.meta["shards"]):
        shard = Store.open(store.folder, number)
        rows = np.arange(first, first + count)
        assert shard.n == count and (shard.pixels(np.arange(count)) == store.pixels(rows)).all()
        assert shard.ids.tolist() == store.ids[rows].tolist() == shard.index["id"].tolist()
        copy = shard.__reduce__()[0](*shard.__reduce__()[1])
        assert copy.checksum == shard.checksum and copy.n == count
        first += count
    assert first == store.n


def test_no_more_than_a_shard_is_one_file(tmp_path, raw):
    convert(raw, tmp_path / "set", image_size=8, shard_size=160, workers=0)
    assert sorted(content(tmp_path / "set")) == ["images.npy", "index.parquet", "meta.json"]
    assert not list(tmp_path.glob("*.shards")) and not list(tmp_path.glob(".*.shards"))


def test_workers_and_what_was_kept_change_no_byte(tmp_path, raw):
    first = content(made(tmp_path, raw, workers=2))
    assert content(made(tmp_path, raw, "again")) == first
    shutil.rmtree(tmp_path / "kept")
    assert content(made(tmp_path, raw, "anew")) == first


def inodes(folder: Path) -> set[int]:
    return {path.stat().st_ino for path in folder.glob("images-*")}


def test_an_added_image_rewrites_one_shard(tmp_path, raw, monkeypatch):
    before = made(tmp_path, raw)
    read = []
    monkeypatch.setattr(FileImages, "read", lambda self, i, read_file=FileImages.read: (read.append(i), read_file(self, i))[1])
    more = with_item(raw, tmp_path, 70, "added")
    after = made(tmp_path, more, "after")
    assert len(inodes(after) - inodes(before)) == 1, "all files but one are the same files"
    (rows,) = [rows for rows in cuts([item.id for item in more.items], SIZE) if 70 in rows]
    assert sorted(read) == list(rows)
    store = Store.open(after)
    assert (
        store.ids[70] == "added"
        and (np.delete(store.pixels(np.arange(161)), 70, 0) == Store.open(before).pixels(np.arange(160))).all()
    )
    anew = tmp_path / "anew"
    convert(more, anew, image_size=8, shard_size=SIZE, workers=0)
    assert content(anew) == content(after), "the bytes do not depend on what was converted before"


def test_other_labels_rewrite_no_shard(tmp_path, raw):
    before = made(tmp_path, raw)
    items = [replace(item, labels=(2,)) if item.split == "train" else item for item in raw.items]
    after = made(tmp_path, replace(raw, items=items), "after")
    assert inodes(after) == inodes(before)
    assert read_labels(after, np.array([0]))[0].tolist() == [0, 0, 1]


@pytest.mark.parametrize("change", ["content", "image_size", "store", "code"])
def test_what_pixels_depend_on_rewrites_them(tmp_path, raw, change):
    own = replace(raw, images=FileImages(tmp_path / "raw", [item.path for item in raw.items]))
    shutil.copytree(raw.images._root, tmp_path / "raw")  # type: ignore[attr-defined]
    before = Plan.of(own, image_size=8, store="array", shard_size=SIZE, kept=tmp_path / "kept", code="1")
    if change == "content":
        save(tmp_path / "raw" / own.items[0].path, 12345)
    options = {"image_size": 9 if change == "image_size" else 8, "store": "jpeg" if change == "store" else "array"}
    after = Plan.of(own, **options, shard_size=SIZE, kept=tmp_path / "kept", code="2" if change == "code" else "1")
    changed = [a != b for a, b in zip(before.keys, after.keys, strict=True)]
    assert changed == [True] + [change != "content"] * (len(changed) - 1)


def test_shards_can_be_made_one_by_one_and_by_others(tmp_path, raw):
    whole = content(made(tmp_path, raw))
    options = {"image_size": 8, "store": "array", "shard_size": SIZE, "kept": tmp_path / "others", "code": ""}
    plan = Plan.of(raw, **options)
    assert plan.missing == list(range(len(plan.shards)))
    assert convert_shard(plan, 2, 0) and not convert_shard(plan, 2, 0)
    assert 2 not in Plan.of(raw, **options).missing
    with plan.kept.making(plan.keys[1], "shard 1"), pytest.raises(DataError, match="another process is making shard 1"):
        convert_shard(plan, 1, 0)
    for shard in plan.missing:
        convert_shard(plan, shard, 0)
    assert not list((tmp_path / "others").glob("*.lock"))
    assert content(made(tmp_path, raw, "together", kept=tmp_path / "others")) == whole


def test_a_kept_shard_that_was_damaged_is_made_again(tmp_path, raw):
    whole = content(made(tmp_path, raw))
    for damage in ("flip", "cut", "meta"):
        folder = sorted(path for path in (tmp_path / "kept").iterdir() if path.is_dir())[0]
        path = folder / ("meta.json" if damage == "meta" else "images.npy")
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(b"{" if damage == "meta" else data if damage == "flip" else data[:-3])
        assert content(made(tmp_path, raw)) == whole


def test_rejected_images_are_listed_and_left_out_of_every_shard(tmp_path, raw):
    shutil.copytree(raw.images._root, tmp_path / "raw")  # type: ignore[attr-defined]
    bad = [3, 77, 78, 141]
    for row in bad:
        (tmp_path / "raw" / raw.items[row].path).write_bytes(b"no image")
    own = replace(raw, images=FileImages(tmp_path / "raw", [item.path for item in raw.items]))
    whole = convert(own, tmp_path / "whole", image_size=8, max_rejected=0.1, workers=0)
    for _ in range(2):  # made, and kept
        meta = json.loads((made(tmp_path, own, max_rejected=0.1) / "meta.json").read_text())
        assert meta["rejected"] == whole["rejected"] and meta["counts"] == whole["counts"] and meta["notes"] == whole["notes"]
        assert (
            Store.open(tmp_path / "set").pixels(np.arange(156)) == Store.open(tmp_path / "whole").pixels(np.arange(156))
        ).all()
    with pytest.raises(DataError, match=r"4 of 160 images rejected \(2.5%\)"):
        made(tmp_path, own, max_rejected=0.01)
    assert (tmp_path / "set.rejected.csv").read_text().count("\n") == 5


def test_sets_labelled_in_part_may_be_in_shards(tmp_path, raw):
    items = [
        replace(item, absent=(0,), labels=(1,)) if i % 9 == 0 and item.labels is not None else item
        for i, item in enumerate(raw.items)
    ]
    part = replace(raw, items=items)
    whole = convert(part, tmp_path / "whole", image_size=8, workers=0)
    folder = made(tmp_path, part)
    meta = files.read_meta(folder)
    assert (
        files.is_partial(meta)
        and meta["unknown"] == whole["unknown"]
        and not files.is_partial(files.read_meta(made(tmp_path, raw)))
    )
    rows = np.arange(150)
    made(tmp_path, part)
    assert (read_labels(folder, rows, partial=True) == read_labels(tmp_path / "whole", rows, partial=True)).all()


# -- what is kept ---------------------------------------------------------------------------------------------------------


def test_what_nothing_uses_is_removed_after_some_days(tmp_path, raw):
    before = made(tmp_path, raw)
    kept = Kept(tmp_path / "kept")
    mine = {path.name for path in kept.folder.iterdir()}
    made(tmp_path, with_item(raw, tmp_path, 70, "more-1"), "after")
    assert mine < {path.name for path in kept.folder.iterdir()}
    old = time.time() - (KEPT_DAYS + 1) * 86_400
    for path in kept.folder.iterdir():
        os.utime(path, (old, old))
    kept.clean(set())
    assert mine < {path.name for path in kept.folder.iterdir()}, "published sets are links to them"
    shutil.rmtree(before)
    kept.clean(set())
    left = {path.name for path in kept.folder.iterdir()}
    assert len(mine - left) == 1, "of the earlier set the shard that the later one does not share"


# -- damage ---------------------------------------------------------------------------------------------------------------


def flip(path):
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.unlink()  # the kept shard is the same file
    path.write_bytes(data)


def cut(path):
    data = path.read_bytes()[:-9]
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("store", "name", "damage", "line"),
    [
        ("array", "images-00001.npy", cut, "images-00001.npy: not readable .*run `dicap-stage convert` again"),
        ("array", "images-00001.npy", Path.unlink, "images-00001.npy: no such file; run `dicap-stage convert` again"),
        ("array", "images-00001.npy", lambda path: path.write_bytes(b"PK"), "images-00001.npy: not readable"),
        ("jpeg", "images-00002.jpg.npy", cut, "images-00002.jpg.npy: not readable"),
        ("jpeg", "offsets-00002.npy", lambda path: np.save(path, np.arange(5)), "offsets-00002.npy: holds 5 int64, "),
        ("array", "index.parquet", cut, "index.parquet: damaged"),
    ],
)  # fmt: skip
def test_damage_is_one_line_that_names_the_shard(tmp_path, raw, store, name, damage, line):
    folder = made(tmp_path, raw, store=store)
    damage(folder / name)
    with pytest.raises(DataError, match=line) as error:
        Store.open(folder)
    assert "\n" not in str(error.value)
    assert any(name in line for line in examine(folder).damage)


def test_a_flipped_bit_in_a_shard_is_found_and_mended_by_converting_again(tmp_path, raw):
    folder = made(tmp_path, raw)
    before = content(folder)
    flip(folder / "images-00002.npy")
    assert examine(folder).damage == [f"{folder / 'images-00002.npy'}: its bytes differ from those that convert wrote"]
    assert content(made(tmp_path, raw)) == before


@pytest.mark.parametrize("changes", [{"shards": [3, 4]}, {"shards": None}])
def test_a_description_that_does_not_fit_is_one_line(tmp_path, raw, changes):
    folder = made(tmp_path, raw)
    meta = json.loads((folder / "meta.json").read_text()) | changes
    (folder / "meta.json").write_text(json.dumps({key: value for key, value in meta.items() if value is not None}))
    with pytest.raises(DataError, match=r"meta.json: (7 images in shards, counted 160|shards is missing)"):
        Store.open(folder)


# -- kills ------------------------------------------------------------------------------------------------------------------

SCRIPT = """
import sys, time
from pathlib import Path
sys.path[:0] = {paths!r}
import data.raw
from dicap.data.convert import convert
from dicap.data.sources.base import FileImages
data.raw.save = lambda *_: None  # the files are there, and are to stay as old as they are
read = FileImages.read
FileImages.read = lambda self, i: (time.sleep(0.01), read(self, i))[1]
raw = data.raw.raw_set(Path({root!r}), n_train=120, n_test=30, n_unlabeled=10)
print("ready", flush=True)
convert(raw, Path({folder!r}), image_size=8, shard_size={size}, kept=Path({kept!r}), workers={workers})
"""


def lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("workers", [0, 2])
def test_killed_at_random_it_goes_on_from_whole_shards(tmp_path, raw, workers, monkeypatch):
    tests, folder, rng = Path(__file__).parents[1], tmp_path / "set", np.random.default_rng(workers)
    names = {"paths": [str(tests), str(tests.parent)], "root": str(tmp_path / "raw"), "folder": str(folder), "size": SIZE}
    script = SCRIPT.format(**names, kept=str(tmp_path / "kept"), workers=workers)
    kept, done = Kept(tmp_path / "kept"), []
    shutil.copytree(raw.images._root, tmp_path / "raw")  # type: ignore[attr-defined]
    for _ in range(2):
        child = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        begun, target = time.monotonic(), len(done) + 1 + int(rng.integers(2))
        while child.poll() is None and len(done) < target and time.monotonic() < begun + 60:
            time.sleep(0.005)
            done = [path.name for path in kept.folder.glob("*") if not path.suffix and kept.holds(path.name)]
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        while lives(child.pid) and time.monotonic() < begun + 120:  # its workers leave within a second, and the lock with them
            time.sleep(0.05)
        assert not folder.exists() and done
    own = replace(raw, images=FileImages(tmp_path / "raw", [item.path for item in raw.items]))
    read = []
    monkeypatch.setattr(FileImages, "read", lambda self, i, read_file=FileImages.read: (read.append(i), read_file(self, i))[1])
    times = {path: path.stat().st_mtime_ns for key in done for path in kept.path(key).iterdir()}
    made(tmp_path, own)
    assert 0 < len(read) < 160 and all(path.stat().st_mtime_ns == time for path, time in times.items())
    undisturbed = made(tmp_path, own, "undisturbed", kept=tmp_path / "elsewhere")
    assert content(folder) == content(undisturbed)
    assert not [path for path in kept.folder.iterdir() if path.name.endswith((".making", ".lock"))]


# -- columns ----------------------------------------------------------------------------------------------------------------


def test_items_in_columns_are_the_items(raw):
    items = [*raw.items, Item("given later", "é/x.png", "train", (0, 2), "unlabeled", (1,)), Item("none", "n", "test", ())]
    columns = Items.of(items)
    assert len(columns) == len(items) and list(columns) == items and columns[3] == items[3] and columns[-1] == items[-1]
    assert list(columns[5:9]) == items[5:9] and list(columns[np.array([8, 2])]) == [items[8], items[2]]
    assert columns == Items.of(iter(items)) and columns != Items.of(items[1:]) and list(Items.of([])) == []
    assert columns.ids.tolist() == [item.id for item in items] and columns.where("split", "test").sum() == 31
    with pytest.raises(IndexError):
        columns[len(items)]


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=3), max_size=20))
def test_texts_are_a_sequence(texts):
    found = Texts.of(iter(texts))
    assert list(found) == texts == found.tolist() and len(found) == len(texts) and found.same(texts)
    assert [found[i] for i in range(len(texts))] == texts and list(found[1:3]) == texts[1:3]
    rows = np.arange(len(texts))[::-1]
    assert found[rows].tolist() == texts[::-1]
    again = next((text for text in texts if texts.count(text) > 1), None)
    assert found.repeated() == again


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 9))
def test_chained_arrays_are_one_array(counts, seed):
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(count, 4, 3)).astype(np.float16) for count in counts]
    whole, chained = np.concatenate(parts), Chained(parts)
    rows, part = rng.integers(0, len(whole), 12), rng.integers(0, 4, 12)
    assert chained.shape == whole.shape and len(chained) == len(whole) and (np.asarray(chained) == whole).all()
    assert (chained[rows] == whole[rows]).all() and (chained[rows, part] == whole[rows, part]).all()
    assert (chained[1:4] == whole[1:4]).all() and chained.take(rows[:0]).shape == (0, 4, 3)


def test_shards_keep_no_file_open(tmp_path, raw):
    folder = made(tmp_path, raw)
    before = len(os.listdir("/proc/self/fd"))
    store = Store.open(folder)
    store.pixels(np.arange(store.n))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_disk_without_links_gets_copies(tmp_path, raw, monkeypatch):
    def refuse(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr("dicap.data.kept.os.link", refuse)
    before = content(made(tmp_path, raw))
    monkeypatch.undo()
    assert content(made(tmp_path, raw, "linked")) == before
