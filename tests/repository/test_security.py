"""What comes from elsewhere runs nothing, reads and writes nothing outside its place, and fills no memory."""

import ast
import json
import re

import numpy as np
import pytest
import tiny
from PIL import Image

from dicap.data.sources.base import FileImages, Rejected
from dicap.files.npy import write_head

SOURCES = sorted([*(tiny.ROOT / "dicap").rglob("*.py"), *(tiny.ROOT / "stages").rglob("*.py")])


def picture(path, colour=(200, 10, 10)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), colour).save(path)
    return path


@pytest.mark.promise("Nothing outside a data set's folder is read, whatever its paths say", section="Bad input and harm")
@pytest.mark.parametrize("way", ["../secret.png", "inner/../../secret.png", "absolute", "link", "link to a folder"])
def test_no_source_reads_outside_its_folder(tmp_path, way):
    """Every source of files hands its paths to FileImages, which looks where they lead."""
    secret, root = picture(tmp_path / "secret.png"), tmp_path / "root"
    picture(root / "inner" / "own.png")
    name = way
    if way == "absolute":
        name = str(secret)
    elif way == "link":
        (root / "link").symlink_to(secret)
    elif way == "link to a folder":
        (root / "out").symlink_to(tmp_path)
        name = "out/secret.png"
    images = FileImages(root, [name, "inner/own.png"])
    with pytest.raises(Rejected, match="out of the data set's folder"):
        images.read(0)
    assert images.read(1).size == (8, 8)


def test_a_root_that_is_itself_a_link_and_links_within_it_are_fine(tmp_path):
    picture(tmp_path / "real" / "a.png")
    (tmp_path / "real" / "b.png").symlink_to("a.png")
    (tmp_path / "root").symlink_to(tmp_path / "real")
    images = FileImages(tmp_path / "root", ["a.png", "b.png"])
    assert images.read(0).size == images.read(1).size == (8, 8)


@pytest.mark.promise("No name in a data set becomes the name of an output file", section="Bad input and harm")
def test_names_from_a_data_set_become_no_file_names(tmp_path):
    raw = tiny.photographs(tmp_path / "raw")
    (raw / "a..b").mkdir()
    (raw / "train-000.png").rename(raw / "a..b" / "$(touch planted);'.png")
    table = (raw / "labels.csv").read_text().replace("train-000.png", "a..b/$(touch planted);'.png")
    (raw / "labels.csv").write_text(table.replace("red", "../../etc").replace("blue", "a/b\\c"))
    folder = tiny.converted(raw, tmp_path / "work" / "table")
    written = sorted(path.name for path in (tmp_path / "work").rglob("*") if path.is_file())
    assert written == ["images.npy", "index.parquet", "meta.json"]
    assert json.loads((folder / "meta.json").read_text())["classes"] == ["../../etc", "a/b\\c", "green"]
    assert not list(tmp_path.rglob("planted"))


BOMB = """
import resource, sys
from pathlib import Path
from dicap.data.sources.base import Rejected, read_rgb
from dicap.errors import DataError
from dicap.files.npy import open_npy
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in map(Path, sys.argv[1:]):
    try:
        open_npy(path, "") if path.suffix == ".npy" else read_rgb(path)
        print("opened", path)
    except (Rejected, DataError) as error:
        print("refused:", error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, "KiB")
"""


@pytest.mark.promise("Decompression bombs are rejected before decoding", section="Bad input and harm")
def test_bombs_take_no_memory(tmp_path):
    paths = []
    for name, options in (("flat.png", {}), ("flat.gif", {}), ("flat.tif", {"compression": "tiff_lzw"})):
        Image.new("1", (20000, 10000)).save(tmp_path / name, **options)
        paths.append(tmp_path / name)
        assert paths[-1].stat().st_size < 2_000_000
    paths.append(tmp_path / "head.npy")
    with paths[-1].open("wb") as file:
        write_head(file, (10**13,), np.uint8)
    _, said = tiny.Child(tmp_path, BOMB, words=[*map(str, paths)]).wait()
    *told, memory = said.splitlines()
    assert [line.split(":")[0] for line in told] == ["refused"] * len(paths), said
    assert int(memory.split()[0]) < 100_000, memory  # decoded, each image alone would take 600,000 KiB


@pytest.mark.promise(
    "No shell is started, and no program except DVC, Git, Slurm's commands and this program", section="Bad input and harm"
)
def test_no_program_is_started_but_dvc_git_and_ourselves_with_a_list_of_arguments():
    """No shell: `make lint` (S602, S605). Engines start Slurm's commands, and jobs, which are cells of a sweep."""
    known = ("'-m', 'dvc'", "'-m', 'stages.", "['git', '-c', 'log.showSignature=false', *", "[*command]", "[*job.command]")
    for path in SOURCES:
        for call in (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)):
            if ast.unparse(call.func).startswith("subprocess."):
                assert isinstance(call.args[0], ast.List) and any(words in ast.unparse(call.args[0]) for words in known), path


@pytest.mark.promise("No pickle is loaded and no archive is unpacked", section="Bad input and harm")
def test_nothing_unsafe_is_loaded_or_unpacked():
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\b(extractall|unpack_archive|tarfile|zipfile)\b", text), path
        assert "LOAD_TRUNCATED_IMAGES" not in text and "MAX_IMAGE_PIXELS" not in text, path
        for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
            name, words = ast.unparse(call.func), {word.arg: ast.unparse(word.value) for word in call.keywords}
            assert name != "torch.load" or words.get("weights_only") == "True", path
            assert name != "np.load" or words.get("allow_pickle") == "False", path
            assert name != "YAML" or words.get("typ", "'rt'") in ("'safe'", "'rt'"), path  # neither makes objects
