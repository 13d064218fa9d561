"""The store: what was put in comes out, whatever stops the writer and whatever was damaged, or nothing does."""

import os
import shutil
import signal
import time

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from dicap.files.content_store import UNUSED_DAYS, ContentStore, digest, remove_unused

# Keys that end in zeros, which NumPy leaves out of bytes, among them.
ENTRIES = st.dictionaries(
    st.binary(min_size=1, max_size=3).map(lambda b: b.ljust(16, b"\0")), st.binary(max_size=40), max_size=12
)


def keys_of(keys):
    return np.array(list(keys), "S16")


def values_of(store, keys):
    return [store.read(key) for key in keys_of(keys)]


@given(batches=st.lists(ENTRIES, max_size=4))
def test_the_last_value_of_each_key_comes_out(tmp_path_factory, batches):
    folder, expected = tmp_path_factory.mktemp("store"), {}
    for batch in batches:
        ContentStore(folder).add(keys_of(batch), list(batch.values()))
        expected |= batch
    store = ContentStore(folder)
    assert values_of(store, expected) == list(expected.values())
    assert values_of(store, [b"never seen".ljust(16)]) == [None]
    assert store.has(keys_of([*expected, b"never seen".ljust(16)])).tolist() == [True] * len(expected) + [False]


@given(cut=st.integers(0, 100), flip=st.integers(0, 10_000), place=st.integers(0, 8))
def test_a_damaged_store_gives_what_was_put_in_or_nothing_and_takes_more(tmp_path_factory, cut, flip, place):
    folder = tmp_path_factory.mktemp("store")
    entries = {digest(bytes([i])): bytes([i]) * (3 * i) for i in range(9)}
    ContentStore(folder).add(keys_of(entries), list(entries.values()))
    file = sorted(folder.glob("*/*"))[place]
    tiny.flip(file, flip, flip % 8)
    os.truncate(file, max(file.stat().st_size - cut, 0))
    for key, value, found in zip(entries, entries.values(), values_of(ContentStore(folder), entries), strict=True):
        assert found in (None, value), key
    lost = [key for key, found in zip(entries, values_of(ContentStore(folder), entries), strict=True) if found is None]
    ContentStore(folder).add(keys_of(lost), [entries[key] for key in lost])
    assert values_of(ContentStore(folder), entries) == list(entries.values())


def test_another_s_files_and_what_a_full_disk_left_are_not_found(tmp_path, monkeypatch):
    key = digest(b"pixels")
    for name in ("plain", "mirror"):
        ContentStore(tmp_path / name).add(keys_of([key]), [name.encode()])
    shutil.rmtree(tmp_path / "plain")
    (tmp_path / "mirror").rename(tmp_path / "plain")
    assert values_of(ContentStore(tmp_path / "plain"), [key]) == [None]
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(os, "replace", lambda *_: os.fstat(-1))
    with pytest.raises(OSError, match=r"Bad file descriptor: .*plain"):  # a message names the store, not what is made from it
        ContentStore(tmp_path / "plain").add(keys_of([key]), [b"x" * 100_000])
    assert sorted(tmp_path.rglob("*")) == before, "nothing half written stays"


WRITER = """
import sys
from pathlib import Path
import numpy as np
from dicap.files.content_store import ContentStore, digest
store, mark = ContentStore(Path.cwd()), sys.argv[1]
for batch in range(100_000):
    keys = [digest(f"{mark} {batch} {i}".encode()) for i in range(5)]
    store.add(np.array(keys, "S16"), [f"{mark} {batch} {i} ".encode() * 50 for i in range(5)])
    print(batch, flush=True)
"""


@pytest.mark.promise("Killed writers of the feature store lose at most the current batch", section="Kills, full disks and damage")
def test_two_writers_that_are_killed_lose_at_most_the_batch_in_work(tmp_path):
    writers = {mark: tiny.Child(tmp_path, WRITER, words=[mark]) for mark in "ab"}
    for writer in writers.values():
        tiny.wait_until(writer.output, writer)
    time.sleep(0.3)
    for writer in writers.values():
        writer.send_signal(signal.SIGKILL)
    written = {mark: int(writer.wait()[1].split()[-1]) for mark, writer in writers.items()}
    ContentStore(tmp_path).add(keys_of([digest(b"later")]), [b"later"])
    store = ContentStore(tmp_path)
    assert values_of(store, [digest(b"later")]) == [b"later"]
    for mark, last in written.items():
        for batch in range(last + 1):
            names = [f"{mark} {batch} {i}" for i in range(5)]
            assert values_of(store, [digest(name.encode()) for name in names]) == [f"{name} ".encode() * 50 for name in names]


def test_what_nobody_opened_for_long_is_removed(tmp_path):
    kind = tmp_path / "features"
    stores = {name: ContentStore(kind / name) for name in ("old", "new")}
    for store in stores.values():
        store.add(keys_of([b"k" * 16]), [b"value"])
    long_ago = time.time() - UNUSED_DAYS * 86_400 - 60
    os.utime(kind / "old" / "lock", (long_ago, long_ago))
    remove_unused(tmp_path)
    assert [path.name for path in kind.iterdir()] == ["new"]
    assert not ContentStore(kind / "old").has(keys_of([b"k" * 16])).any()
    shutil.rmtree(kind)
    stores["old"].add(keys_of([b"k" * 16]), [b"again"])  # by a command that was at work
    assert values_of(ContentStore(kind / "old"), [b"k" * 16]) == [b"again"]
