"""What no file may hold and Git must not track; who may import and print what is checked by `make lint`."""

import re
from pathlib import Path

import tiny

ROOT = tiny.ROOT


def test_no_file_names_a_package_index_or_a_place_on_somebodys_machine():
    addresses = re.compile(
        r"https?://[^\s\"']*(?:/simple\b|pypi|anaconda|conda\.|nexus|artifactory|jfrog)|--(?:extra-)?index-url|--trusted-host"
        r"|/(?:home|Users|root)/\w+",
        re.IGNORECASE,
    )
    found = []
    for path in (ROOT / name for name in tiny.listed() if (ROOT / name).is_file()):
        if path == Path(__file__) or path.suffix in (".png", ".jpg", ".npy", ".parquet", ".safetensors"):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}: {hit.group()}" for hit in addresses.finditer(text)]
    assert not found
