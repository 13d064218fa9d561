"""Conversion: the pixels, broken files, and what failures leave behind."""

import os
import signal
import struct
import time
import zlib
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import pytest
import tiny
from PIL import Image

from data.raw import photo, raw_set, save, small_set
from dicap.data.convert import check_files, convert
from dicap.data.sources.base import FileImages, Item, RawSet, read_rgb
from dicap.data.store import Store
from dicap.errors import DataError
from dicap.files.atomic import alone


def listed(root: Path, names, split="train"):
    """A raw set of files that exist or not, with one good test image."""
    save(root / "good-test.png", 99)
    items = [Item(name, name, split, (0,)) for name in names] + [Item("good-test", "good-test.png", "test", ())]
    return RawSet("table", ["c"], items, FileImages(root, [item.path for item in items]))


def test_pixels_are_pillows_bilinear_resize_without_the_aspect_ratio(tmp_path):
    raw = raw_set(tmp_path / "raw")
    Image.new("RGB", (1, 1), (3, 0, 0)).save(tmp_path / "raw" / raw.items[2].path)
    meta = convert(raw, tmp_path / "set", image_size=20, workers=0)
    store = Store.open(tmp_path / "set")
    for i, item in enumerate(raw.items):
        with Image.open(tmp_path / "raw" / item.path) as image:
            assert (store.image(i) == np.asarray(image.convert("RGB").resize((20, 20), Image.Resampling.BILINEAR))).all()
    assert meta["counts"] == {"train": 8, "test": 4, "unlabeled": 0}
    assert meta["rejected"] == [] and meta["schema"] == 1


def test_a_pool_writes_the_same_bytes_as_one_process(tmp_path):
    raw = raw_set(tmp_path / "raw", n_train=130, n_test=9)
    for workers in (0, 2):
        convert(raw, tmp_path / str(workers), image_size=8, workers=workers)
    assert tiny.content(tmp_path / "0") == tiny.content(tmp_path / "2")


def test_modes_become_rgb_as_the_published_code_makes_them(tmp_path):
    rgb, red = photo(1), Image.new("RGB", (8, 8), (200, 10, 30))
    cases = {
        "cmyk.jpg": red.convert("CMYK"),
        "palette.png": red.convert("P", palette=Image.Palette.ADAPTIVE),
        "grey.png": rgb.convert("L"),
        "alpha.png": rgb.convert("RGBA"),
        "one-bit.png": rgb.convert("1"),
        "two-channels.png": rgb.convert("LA"),
    }
    for name, image in cases.items():
        image.save(tmp_path / name)
        with Image.open(tmp_path / name) as again:
            expected = np.asarray(again.convert("RGB"))
        found = read_rgb(tmp_path / name)
        assert found.mode == "RGB" and (np.asarray(found) == expected).all(), name
    assert np.abs(np.asarray(read_rgb(tmp_path / "cmyk.jpg")).astype(int) - (200, 10, 30)).max() < 12
    assert np.abs(np.asarray(read_rgb(tmp_path / "palette.png")).astype(int) - (200, 10, 30)).max() < 3


def test_the_orientation_tag_is_not_applied_as_in_the_published_code(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    photo(1, 40, 30).save(tmp_path / "turned.jpg", exif=exif)
    assert read_rgb(tmp_path / "turned.jpg").size == (40, 30)
    turned = read_rgb(tmp_path / "turned.jpg", upright=True)
    assert turned.size == (30, 40)
    assert np.array_equal(np.asarray(turned), np.rot90(np.asarray(read_rgb(tmp_path / "turned.jpg")), -1))


def twelve_broken(root: Path) -> dict[str, str]:
    """Twelve kinds of broken files and a part of the reason each should get."""
    jpeg, png = save(root / "whole.jpg", 1, quality=95).read_bytes(), save(root / "whole.png", 2).read_bytes()
    broken = bytearray(png)
    broken[png.index(b"IDAT") + 12] ^= 0xFF
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(bytes(100)), b"IEND"]
    body = b"".join(struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)
    files = {
        "01-empty.jpg": (b"", "0 bytes"),
        "02-truncated.jpg": (jpeg[: len(jpeg) // 2], "truncated"),
        "03-truncated.png": (png[: len(png) // 2], "truncated"),
        "04-web-page.jpg": (b"<!DOCTYPE html><html><body>404 Not Found</body></html>", "not an image"),
        "05-text.jpg": (b"this photo is no longer available\n", "not an image"),
        "06-noise.jpg": (np.random.default_rng(0).bytes(3000), "not an image"),
        "07-header-only.jpg": (jpeg[:30], ""),
        "08-checksum.png": (bytes(broken), ""),
        "12-bomb.png": (b"\x89PNG\r\n\x1a\n" + body, "limit"),  # a few bytes that claim 3.6 thousand million pixels
    }
    for name, (content, _) in files.items():
        (root / name).write_bytes(content)
    (root / "09-folder.jpg").mkdir()
    (root / "10-link.jpg").symlink_to(root / "nowhere.jpg")
    os.mkfifo(root / "11-pipe.jpg")
    others = {"09-folder.jpg": "a folder", "10-link.jpg": "broken link", "11-pipe.jpg": "not a regular file"}
    return {name: reason for name, (_, reason) in files.items()} | others | {"13-missing.jpg": "missing"}


@pytest.mark.promise("An image cut short is refused, never filled with grey", section="Numbers")
def test_twelve_kinds_of_broken_files_and_a_missing_one_are_listed_with_reasons(tmp_path):
    reasons = twelve_broken(tmp_path)
    raw = listed(tmp_path, [*reasons, "whole.jpg", "whole.png"])
    meta = convert(raw, tmp_path / "set", image_size=8, max_rejected=1.0, workers=0)
    said = {entry["path"]: entry["reason"] for entry in meta["rejected"]}
    assert said.keys() == reasons.keys()
    for name, reason in reasons.items():
        assert said[name] and reason in said[name].lower() and "\n" not in said[name], name
    store = Store.open(tmp_path / "set")
    assert store.ids.tolist() == ["whole.jpg", "whole.png", "good-test"]
    with Image.open(tmp_path / "whole.png") as image:
        assert (store.image(1) == np.asarray(image.resize((8, 8), 2))).all()
    assert any("13 images were rejected" in note for note in meta["notes"])


@pytest.mark.promise(
    "A conversion that rejects too many images fails with one line and keeps the earlier set", section="Your files and labels"
)
def test_above_the_limit_it_fails_with_one_line_and_keeps_the_earlier_set(tmp_path):
    folder = small_set(tmp_path)
    before, broken = tiny.content(folder), tmp_path / "broken"
    raw = listed(broken, [*twelve_broken(broken), "whole.jpg", "whole.png"])
    words = r"13 of 16 images rejected \(81.2%\), more than convert.max_rejected \(50.0%\); the first is 01-empty"
    with pytest.raises(DataError, match=words) as error:
        convert(raw, folder, image_size=8, max_rejected=0.5, workers=0)
    assert "\n" not in str(error.value) and tiny.content(folder) == before
    listing = folder.with_name("set.rejected.csv").read_text().splitlines()
    assert len(listing) == 14 and listing[0] == "path,reason"
    assert not list(tmp_path.glob(".set.tmp*"))


def test_a_split_that_lost_all_its_images_fails_whatever_the_limit(tmp_path):
    raw = listed(tmp_path, ["missing-1.png", "missing-2.png"])
    with pytest.raises(DataError, match="all listed images of split train were rejected"):
        convert(raw, tmp_path / "set", image_size=8, max_rejected=1.0, workers=0)


def test_a_second_conversion_at_the_same_time_is_refused(tmp_path):
    with alone(tmp_path / "set"), pytest.raises(DataError, match="another process is writing it"):
        convert(raw_set(tmp_path / "raw"), tmp_path / "set", image_size=8, workers=0)
    convert(raw_set(tmp_path / "raw"), tmp_path / "set", image_size=8, workers=0)


class Slow(FileImages):
    """Images whose reading takes a while."""

    def read(self, i):
        time.sleep(0.02)
        return super().read(i)


@pytest.mark.promise("A conversion that is killed keeps the earlier set and leaves no processes", section="Your files and labels")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_conversion_leaves_the_earlier_set_and_no_processes(tmp_path, workers):
    folder = small_set(tmp_path)
    before, raw = tiny.content(folder), raw_set(tmp_path / "raw2", n_train=300)
    slow = replace(raw, images=Slow(tmp_path / "raw2", [item.path for item in raw.items]))
    options = {"image_size": 8, "workers": workers}
    child = get_context("fork").Process(target=convert, args=(slow, folder), kwargs=options)
    child.start()
    written = tmp_path / ".set.tmp" / "images.npy"
    tiny.wait_until(lambda: written.exists() and written.stat().st_size > 2000)
    processes = psutil.Process(child.pid).children(recursive=True)
    assert len(processes) >= workers
    child.kill()
    child.join()
    assert tiny.content(folder) == before
    assert not (tmp_path / ".set.tmp" / "meta.json").exists()  # what is half written is no set
    tiny.wait_until(lambda: not any(map(tiny.alive, processes)), seconds=10)
    convert(raw_set(tmp_path / "raw"), folder, image_size=16, workers=0)  # starts over
    assert Store.open(folder).image_size == 16 and not (tmp_path / ".set.tmp").exists()


def test_a_worker_that_dies_is_one_line(tmp_path):
    raw = raw_set(tmp_path / "raw", n_train=200)
    dying = replace(raw, images=Dying(tmp_path / "raw", [item.path for item in raw.items]))
    with pytest.raises(DataError, match="a worker process was killed"):
        convert(dying, tmp_path / "set", image_size=8, workers=2)
    assert not (tmp_path / "set").exists()


class Dying(FileImages):
    """Images whose 50th kills the process that reads it."""

    def read(self, i):
        if i == 50:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(i)


def test_an_id_listed_twice_is_refused(tmp_path):
    raw = listed(tmp_path, ["good-test.png", "good-test.png"])
    for check in (partial(check_files, max_rejected=0.01), partial(convert, image_size=8)):
        with pytest.raises(DataError, match=r"image 'good-test.png' is listed 2 times"):
            check(raw, tmp_path / "set")
