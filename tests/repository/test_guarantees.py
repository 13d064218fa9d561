"""docs/guarantees.md lists the promises that tests are marked with; WRITE_PROMISES=1 writes them into the page."""

import ast
import os
import re
from collections import defaultdict

from repository.test_citations import ROOT

PAGE = ROOT / "docs" / "guarantees.md"
SECTION = re.compile(r"(?m)^## (?P<title>.+)\n\n(?P<table>(?:\|.*\n)*)")


def promises() -> dict[str, list[str]]:
    """The rows of each section: every mark `promise("sentence", section="title")` of a test, in the order of the files."""
    rows = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for test in ast.parse(path.read_text(encoding="utf-8")).body:
            for mark in getattr(test, "decorator_list", []):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.promise":
                    sentence, section = (ast.literal_eval(value) for value in (mark.args[0], mark.keywords[0].value))
                    rows[section].append(f"| {sentence} | `{path.relative_to(ROOT)}::{test.name}` |")
    return rows


def test_the_page_lists_the_promises_of_the_tests():
    rows, text = promises(), PAGE.read_text(encoding="utf-8")
    assert {*rows} == {section["title"] for section in SECTION.finditer(text)}, (
        "a section of the page or of a mark is not in the other"
    )

    def written(section: re.Match) -> str:
        return "\n".join([f"## {section['title']}\n", "| promise | held by |", "| --- | --- |", *rows[section["title"]], ""])

    page = SECTION.sub(written, text)
    if os.environ.get("WRITE_PROMISES"):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page, "WRITE_PROMISES=1 python -m pytest tests/repository/test_guarantees.py"
