"""docs/guarantees.md names tests; each must exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_named_test_exists(path, name):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_promise_names_a_test():
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith(("| promise", "| ---"))]
    assert len(rows) > 20 and all("::" in line.split("|")[2] for line in rows)
    assert TEXT.count("::") == len(re.findall(r"`tests/[\w/]+\.py::\w+`", TEXT)), "a test is not spelt path::name"
