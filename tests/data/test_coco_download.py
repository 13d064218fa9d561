"""COCO in the layout in which it is downloaded, made up and of real photographs; HEIC with and without its package."""

import pytest
from PIL import Image

from data.awkward import HEIC, linked, picture
from dicap.data.sources import base
from dicap.data.sources.base import Rejected
from dicap.data.sources.own import read as own
from dicap.data.survey import survey
from dicap.settings import Own

OPTIONS = Own()


def test_a_linked_folder_is_followed_and_a_link_in_it_that_leads_elsewhere_is_not(tmp_path):
    linked(tmp_path / "set")
    secret = picture(tmp_path / "secret.png", 3)
    inside = tmp_path / "set-elsewhere" / "b.png"
    inside.unlink()
    inside.symlink_to(secret)
    raw = own.read(tmp_path / "set", OPTIONS.model_copy(update={"test_share": 0.3}))
    for i, item in enumerate(raw.items):
        if item.path.endswith("b.png"):
            with pytest.raises(Rejected, match="out of the data set's folder"):
                raw.images.read(i)
        else:
            assert raw.images.read(i).size == (10, 8)


def test_a_telephones_photograph_says_which_package_it_needs(tmp_path, monkeypatch):
    (tmp_path / "a.jpg").write_bytes(HEIC)
    monkeypatch.setattr(base, "_know_heic", lambda: False)
    with pytest.raises(Rejected, match=r"HEIC, which needs one more package: pip install 'dicap\[heic\]'"):
        base.read_rgb(tmp_path / "a.jpg")
    (tmp_path / "dog").mkdir()
    for name in ("dog/a.heic", "dog/b.HEIC"):
        (tmp_path / name).write_bytes(HEIC)
    found, _ = survey(tmp_path, OPTIONS)
    assert len(found.unreadable) == 3 and any("pip install 'dicap[heic]'" in problem for problem in found.problems)


def test_a_telephones_photograph_is_read_where_the_package_is(tmp_path):
    pi_heif = pytest.importorskip("pi_heif", reason="the extra `heic` is not installed: pip install 'dicap[heic]'")
    assert base._know_heic() and hasattr(pi_heif, "register_heif_opener")
    assert ".HEIC" in {ending.upper() for ending in Image.registered_extensions()}
