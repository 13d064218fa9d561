"""Every citation leads somewhere: sections of docs/methods.md, its equations and settings, and files of the repository."""

import ast
import io
import posixpath
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest
import tiny

ROOT = Path(__file__).parents[2]
METHODS = "docs/methods.md"
SECTION = r"\d+(?:\.\d+)*(?:-[A-Z]\d*)?"
# `docs/methods.md 3.4`, `docs/methods.md 3.6, 3.13-B5`, `docs/methods.md 3.6 to 3.8`, `docs/methods.md 9's`
CITED = re.compile(rf"docs/methods\.md`?\s+({SECTION}(?:(?:,| and| to|;)\s+(?:and\s+)?{SECTION})*)")
ITEM = re.compile(r"\b\d+\.\d+-[A-Z]\d*\b")  # an item such as 3.13-E stands for itself, wherever it is named
NAME = re.compile(r"(?<![\w./<>{}*-])((?:[\w.-]+/)*[\w-]+\.(?:md|py|ya?ml|json|toml|svg|lock|cff|html))(?![\w{*<])(?!\.\w)")
PLACES = ("benchmarks/", "configs/", "dicap/", "docs/", "experiments/", "stages/", "tests/")
NO_FILES = {"ruamel.yaml"}  # a package
PRODUCTS = (
    "artifacts/",
    "data/",
    "MODEL_CARD.md",
    "benchmarks/results/suite.json",
    "benchmarks/results/gpu.json",
)  # written by commands
EXAMPLES = ("docs/errors.md",)  # its messages come from made-up projects


@cache
def tracked() -> tuple[str, ...]:
    return tuple(name for name in tiny.listed(*tiny.NOT_IGNORED) if (ROOT / name).is_file())


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def prose(name: str, text: str) -> str:
    """What of a file is read by people and not by the program alone: comments and docstrings of tests, elsewhere all of it."""
    if not (name.startswith("tests/") and name.endswith(".py")):
        return text
    comments = [t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT]
    nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)]
    return "\n".join([*comments, *(ast.get_docstring(node) or "" for node in nodes)])


def joined(text: str) -> str:
    """Text with a citation that is wrapped at a line's end, or into the next comment, in one line."""
    return re.sub(r"\s*\n\s*(?:# )?", " ", text)


@cache
def sections(text: str) -> set[str]:
    """What can be cited of a specification: its headings' numbers and its labelled items."""
    headings = re.findall(rf"^#{{2,5}} ({SECTION})\.?(?= )", text, re.MULTILINE)
    items = re.findall(r"\*\*(\d+\.\d+-[A-Z]\d*)\b", text)
    return {*headings, *items}


def cited_sections(text: str) -> set[str]:
    text = joined(text)
    numbers = {number for hit in CITED.finditer(text) for number in re.findall(SECTION, hit[1])}
    return numbers | set(ITEM.findall(text))


def cited_files(text: str) -> set[str]:
    """Names of text files; what is a pattern (`<name>.py`, `*.yaml`, `{dataset}.yaml`) is none."""
    found = {name for name in NAME.findall(text) if name.startswith(PLACES) or name.endswith((".md", ".py", ".yaml"))}
    return {name for name in found - NO_FILES if not name.startswith(PRODUCTS)}


def missing_files(text: str, folder: str, files: tuple[str, ...]) -> set[str]:
    """Cited names that are no file: not from the root, not beside the citing file (of `folder`), not anywhere by a bare name."""

    def exists(name: str) -> bool:
        beside = posixpath.normpath(f"{folder}/{name}")
        return name in files or beside in files or any(file.endswith("/" + name) for file in files)

    return {name for name in cited_files(text) if not exists(name)}


def texts() -> list[str]:
    kinds = (".py", ".md", ".yaml", ".toml", ".cff")
    return [name for name in tracked() if (name.endswith(kinds) or name == "Makefile") and name not in EXAMPLES]


def pytest_generate_tests(metafunc):
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", texts())


def test_cited_sections_are_in_the_specification(name):
    lost = cited_sections(prose(name, text_of(name))) - sections(text_of(METHODS))
    assert not lost, f"{name} cites sections that {METHODS} does not have: {', '.join(sorted(lost))}"


def test_cited_files_are_in_the_repository(name):
    lost = missing_files(prose(name, text_of(name)), str(Path(name).parent), tracked())
    assert not lost, f"{name} cites files that are not in the repository: {', '.join(sorted(lost))}"


def test_links_between_documents_lead_somewhere():
    for name in (name for name in tracked() if name.endswith(".md")):
        for target in re.findall(r"\]\(([^)#\s]+)\)", text_of(name)):
            assert target.startswith("http") or (ROOT / name).parent.joinpath(target).exists(), f"{name}: {target}"


def test_the_specification_is_cited_at_all():
    assert sum(len(cited_sections(prose(name, text_of(name)))) for name in texts() if name != METHODS) > 100
    assert {"2", "2.1.4", "3.13-A2", "3.13-E", "3.14-A", "4.10", "9", "11"} <= sections(text_of(METHODS))


def test_the_specification_names_settings_that_exist():
    from dicap.settings import known_keys

    groups = {key.split(".")[0] for key in known_keys() if "." in key}
    named = {key for key in re.findall(r"`([a-z_0-9]+\.[a-z_0-9]+)(?::[^`]*)?`", text_of(METHODS)) if key.split(".")[0] in groups}
    assert len(named) > 30
    assert named <= set(known_keys()), sorted(named - set(known_keys()))


def test_the_equations_are_numbered_in_order_and_each_is_cited_by_the_code_that_computes_it():
    text = text_of(METHODS)
    numbered = [int(n) for n in re.findall(r"^\S.* {2,}\((\d+)\)$", text, re.MULTILINE)]
    assert numbered == list(range(1, len(numbered) + 1)) and len(numbered) > 25
    cited = {int(n) for line in text.splitlines() for n in re.findall(r"(?<= )\((\d{1,2})\)(?=[ ,.;:])", line)}
    assert cited <= set(numbered), sorted(cited - set(numbered))
    code = "".join(text_of(name) for name in texts() if name.startswith(("dicap/", "stages/")))
    assert {int(n) for n in re.findall(r"Equation \((\d+)\)", code)} == set(numbered), "of code, as Equation (6)"
    assert "Equation (11')" in code and re.search(r" {2,}\(11'\)$", text, re.MULTILINE), "WCL's, which has no number in the paper"
    assert not (other := re.findall(r"\b(?:eq\.|Eq\.|equation \(|Equations \()[^\n]*", code)), other


# -- the checker itself


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("rates (docs/methods.md 3.4), with gaps closed (3.13-A4)", {"3.4", "3.13-A4"}),
        ("docs/methods.md 3.6, 3.13-B5", {"3.6", "3.13-B5"}),
        ("Steps (docs/methods.md 3.4 to 3.6).", {"3.4", "3.6"}),
        ("docs/methods.md 2.4, 2.5, 5", {"2.4", "2.5", "5"}),
        ("against docs/methods.md 9's fixtures", {"9"}),
        ("wrapped (docs/methods.md\n    3.99)", {"3.99"}),
        ("# wrapped (docs/methods.md\n    # 3.99)", {"3.99"}),
        ("[the specification](docs/methods.md) and 3.4", set()),
        ("Python 3.13 and 5.2 percent", set()),
    ],
)
def test_the_checker_finds_section_numbers(text, found):
    assert cited_sections(text) == found


def test_the_checker_notices_a_file_that_is_not_there():
    files = ("dicap/losses.py", "docs/methods.md", "configs/published.yaml", "docs/figures/curve.svg")
    patterns = "dicap/methods/<name>.py, configs/{a}.yaml, *.py"
    fine = f"dicap/losses.py, losses.py, methods.md, published.yaml, docs/figures/curve.svg, {patterns}"
    assert missing_files(fine, "docs", files) == set()
    assert missing_files("[curve](figures/curve.svg)", "docs", files) == set()
    for broken in ("dicap/loss.py", "design.md", "docs/figures/other.svg", "../docs/absent.md", "configs/absent.yaml"):
        assert missing_files(f"see {broken}, there", "docs", files), broken


def test_the_checker_reads_comments_and_docstrings_of_tests_and_not_their_data():
    code = '"""See docs/absent.md."""\n\n\ndef test_x():\n    """Of gone.py."""\n    path = "made.yaml"  # as in lost.yaml\n'
    assert cited_files(prose("tests/test_x.py", code)) == {"docs/absent.md", "gone.py", "lost.yaml"}
    assert "made.yaml" in cited_files(prose("dicap/x.py", code))
