"""What one stage writes for another: round trips, atomic writes, damage found."""

import os

import numpy as np
import pytest
import tiny

from dicap.errors import DataError
from dicap.files import artifacts
from dicap.files.atomic import replacing_folder
from dicap.files.json_files import read_json, write_json
from dicap.files.tables import lists, matrix


def test_list_columns_of_no_images_and_no_classes():
    assert matrix(lists(np.zeros((0, 3), np.int8))).shape == (0, 0)
    assert len(lists(np.zeros((2, 0), np.int8))) == 2


@pytest.mark.promise("A damaged split is named", section="Kills, full disks and damage")
def test_a_flipped_bit_in_a_page_is_found(tmp_path):
    path = tmp_path / "split.parquet"
    artifacts.write_split([f"image-{i}" for i in range(1000)], ["sup", "est"] * 500, path)
    for place in range(60, 400, 40):
        tiny.flip(path, place)
        with pytest.raises(DataError, match="damaged"):
            artifacts.read_roles(path)
        tiny.flip(path, place)


@pytest.mark.parametrize("read", [artifacts.read_roles, read_json])
@pytest.mark.parametrize("content", ["", "PAR1", "hello", "[1]", "{", None])
def test_a_file_that_is_damaged_or_missing_is_one_line_with_its_name(tmp_path, read, content):
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=r"file: no such file" if content is None else r"file: ") as error:
        read(path)
    assert "\n" not in str(error.value)


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "metrics.json"
    write_json({"map": 1}, path)
    with pytest.raises(ValueError, match="Out of range"):
        write_json({"map": float("nan")}, path)
    assert read_json(path) == {"map": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.json"]


@pytest.mark.parametrize("at", [0, 1])
def test_stopped_between_its_renames_a_folder_is_the_earlier_one(tmp_path, monkeypatch, at):
    """Ctrl-C, and a kill, which only the next call can mend."""
    place, rename, calls = tmp_path / "out", os.rename, []

    def stop(*arguments):
        calls.append(arguments)
        if len(calls) == at + 1:
            raise KeyboardInterrupt
        rename(*arguments)

    with replacing_folder(place) as folder:
        (folder / "a").write_text("earlier")
    monkeypatch.setattr(os, "rename", stop)
    with pytest.raises(KeyboardInterrupt), replacing_folder(place) as folder:
        (folder / "a").write_text("later")
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")} == {"out", "out/a"}
    assert (place / "a").read_text() == "earlier"
    monkeypatch.undo()
    place.rename(tmp_path / ".out.old")
    with pytest.raises(KeyError), replacing_folder(place):
        raise KeyError
    assert (place / "a").read_text() == "earlier"


def test_a_name_that_is_too_long_is_one_line(tmp_path):
    with pytest.raises(DataError, match=r"a name in this path is too long"), replacing_folder(tmp_path / ("a" * 250)):
        pass
