"""Every citation leads somewhere: sections of docs/methods.md, its equations and settings, and files of the repository."""

import ast
import io
import posixpath
import re
import tokenize
from functools import cache
from pathlib import Path

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
PRODUCTS = ("artifacts/", "data/", "MODEL_CARD.md", "benchmarks/results/gpu_day/")  # written by commands
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


@cache
def sections(text: str) -> set[str]:
    """What can be cited of a specification: its headings' numbers and its labelled items."""
    headings = re.findall(rf"^#{{2,5}} ({SECTION})\.?(?= )", text, re.MULTILINE)
    items = re.findall(r"\*\*(\d+\.\d+-[A-Z]\d*)\b", text)
    return {*headings, *items}


def cited_sections(text: str) -> set[str]:
    text = re.sub(r"\s*\n\s*(?:# )?", " ", text)  # a citation may be wrapped at a line's end, or into the next comment
    numbers = {number for hit in CITED.finditer(text) for number in re.findall(SECTION, hit[1])}
    return numbers | set(ITEM.findall(text))


def cited_files(text: str) -> set[str]:
    """Names of text files; what is a pattern (`<name>.py`, `*.yaml`, `{dataset}.yaml`) is none."""
    found = {name for name in NAME.findall(text) if name.startswith(PLACES) or name.endswith((".md", ".py", ".yaml"))}
    return {name for name in found - NO_FILES if not name.startswith(PRODUCTS)}


def missing_files(text: str, folder: Path) -> set[str]:
    """Cited names that are no file: not from the root, not beside the citing file (of `folder`), not anywhere by a bare name."""

    def exists(name: str) -> bool:
        beside = posixpath.normpath(folder / name)
        return not {name, beside}.isdisjoint(tracked()) or any(file.endswith("/" + name) for file in tracked())

    return {name for name in cited_files(text) if not exists(name)}


def texts() -> list[str]:
    kinds = (".py", ".md", ".yaml", ".toml", ".cff")
    return [name for name in tracked() if (name.endswith(kinds) or name == "Makefile") and name not in EXAMPLES]


def test_cited_sections_are_in_the_specification():
    known = sections(text_of(METHODS))
    lost = {name: missing for name in texts() if (missing := cited_sections(prose(name, text_of(name))) - known)}
    assert not lost, f"sections that {METHODS} does not have"


def test_cited_files_are_in_the_repository():
    found = {name: missing_files(prose(name, text_of(name)), Path(name).parent) for name in texts()}
    assert not {name: missing for name, missing in found.items() if missing}


def anchors(text: str) -> set[str]:
    """What a link can name in a document: its headings in lower case without punctuation, joined by hyphens."""
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"(?m)^#+ (.+)$", text)}


def test_links_between_documents_lead_somewhere():
    for name in (name for name in tracked() if name.endswith(".md")):
        for target, anchor in re.findall(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", text_of(name)):
            document = ROOT.joinpath(name).parent / target if target else ROOT / name
            assert document.exists(), f"{name}: {target}"
            assert not anchor or anchor in anchors(document.read_text(encoding="utf-8")), f"{name}: {target}#{anchor}"


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


def test_no_file_names_a_package_index_or_a_place_on_somebodys_machine():
    addresses = re.compile(
        r"https?://[^\s\"']*(?:/simple\b|pypi|anaconda|conda\.|nexus|artifactory|jfrog)|--(?:extra-)?index-url|--trusted-host"
        r"|/(?:home|Users|root)/\w+",
        re.IGNORECASE,
    )
    for path in (ROOT / name for name in tracked()):
        if path != Path(__file__) and path.suffix not in (".png", ".jpg", ".npy", ".parquet", ".safetensors"):
            assert not (hit := addresses.search(path.read_text(encoding="utf-8", errors="replace"))), (path, hit)
