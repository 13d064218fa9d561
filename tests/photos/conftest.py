"""A folder of images with what goes wrong in folders."""

import shutil
from pathlib import Path

import pytest
import tiny

import dicap


@pytest.fixture(scope="session")
def photos(tmp_path_factory) -> Path:
    """Twelve images in two folders, three files that are none, and a note that is no image's name."""
    folder = tmp_path_factory.mktemp("photos")
    tiny.photographs(folder / "deep", {"test": 12})
    (folder / "deep" / "labels.csv").unlink()
    (folder / "other").mkdir()
    for path in sorted((folder / "deep").iterdir())[:5]:
        shutil.move(path, folder / "other" / path.name)
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")
    (folder / "empty.png").write_bytes(b"")
    (folder / "page.jpg").write_text("<html>404</html>")
    (folder / "notes.txt").write_text("not an image")
    (folder / ".hidden.png").write_bytes(b"")
    return folder


@pytest.fixture(scope="session")
def model(model_file):
    """The last model, by its folder as a person types it."""
    return dicap.load_model(str(model_file.parent))
