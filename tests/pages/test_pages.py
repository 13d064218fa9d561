"""What pages are written with: data that stays data, a policy that names what may run, pictures that fit."""

import base64
import hashlib
import html
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dicap.pages.html import data_block, render

OPENING = '<script type="application/json" id="x">'


@given(st.recursive(st.text() | st.floats(allow_nan=False, allow_infinity=False), lambda inner: st.lists(inner, max_size=3)))
def test_data_come_back_and_hold_no_markup(value):
    block = str(data_block(value, "x"))
    content = block.removeprefix(OPENING).removesuffix("</script>")
    assert json.loads(content) == value
    assert not re.search(r"[<>&]", content) and content.isascii()


def test_a_name_that_is_no_text_travels_as_an_escape():
    name = b"caf\xe9.png".decode("utf-8", "surrogateescape")
    assert data_block(name, "x").encode("utf-8")
    with pytest.raises(ValueError, match="not JSON compliant"):
        data_block(float("nan"), "x")


def test_the_policy_names_the_only_script_and_style(tmp_path, monkeypatch):
    monkeypatch.setattr("dicap.pages.html.TEMPLATES", tmp_path)
    (tmp_path / "page.html").write_text(
        '<meta content="{{ policy }}"><style>{{ style }}</style>{{ words }}<script>{{ script }}</script>'
    )
    (tmp_path / "a.css").write_text("a > b { color: red }\n")
    (tmp_path / "a.js").write_text("if (1 < 2) alert('&');\n")
    page = render("page.html", styles=["a.css"], scripts=["a.js"], words="</script><script>alert(1)")
    policy = html.unescape(re.search(r'content="([^"]+)"', page)[1]).split("; ")
    assert policy[0] == "default-src 'none'" and "img-src data:" in policy
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        named = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{named}'" in policy
    assert "unsafe" not in page
    loose = render("page.html", styles=["a.css"], style_attributes=True, words="")
    assert "style-src &#39;unsafe-inline&#39;" in loose and "script-src &#39;none&#39;" in loose
