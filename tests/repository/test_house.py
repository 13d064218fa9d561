"""The rules of the house: who may import whom, who may print, what must be documented, what no file may hold."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import tiny

ROOT = Path(__file__).parents[2]
MODULES = sorted([*(ROOT / "dicap").rglob("*.py"), *(ROOT / "stages").rglob("*.py")])
CORE = [path for path in MODULES if path.is_relative_to(ROOT / "dicap")]
STAGES = [path for path in MODULES if path.is_relative_to(ROOT / "stages")]

# Pure mathematics: nothing of the project but its errors and each other.
PURE = (
    "dicap.calibration.counts",
    "dicap.calibration.curve",
    "dicap.calibration.decision",
    "dicap.frozen.estimators",
    "dicap.frozen.logistic",
    "dicap.calibration.ranks",
    "dicap.calibration.rates",
    "dicap.calibration.thresholds",
    "dicap.calibration.quota",
    "dicap.frozen.solver",
    "dicap.losses",
    "dicap.metrics.operating_point",
    "dicap.metrics.ranking",
    "dicap.metrics.warnings",
)


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(tree):
    """Modules that are imported anywhere in a piece of code."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{ast.unparse(node)}: imports are absolute"
            base = node.module
            found |= {f"{base}.{alias.name}" if is_module(f"{base}.{alias.name}") else base for alias in node.names}
    return found


def imported(path):
    """Those of the project that a file imports."""
    return {name for name in imports(tree_of(path)) if name.split(".")[0] in ("dicap", "stages")}


def packages(tree):
    """The packages they belong to."""
    return {name.split(".")[0] for name in imports(tree)}


def is_module(name):
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


@pytest.mark.parametrize("name", PURE)
def test_the_mathematics_knows_nothing_of_the_project(name):
    assert imported(ROOT / f"{name.replace('.', '/')}.py") <= {"dicap.errors", *PURE}


def calls(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_the_core_neither_prints_nor_pickles_nor_knows_dvc_or_the_command_line(path):
    tree = tree_of(path)
    assert not [c for c in calls(tree) if isinstance(c.func, ast.Name) and c.func.id in ("print", "input", "breakpoint", "exit")]
    assert not packages(tree) & {"dvc", "dvclive", "click", "argparse", "yaml", "pickle", "shelve", "dill", "joblib"}
    opened = [
        constant.value
        for call in calls(tree)
        if (isinstance(call.func, ast.Name) and call.func.id in ("open", "Path"))
        or (isinstance(call.func, ast.Attribute) and call.func.attr in ("open", "read_text", "joinpath"))
        for argument in call.args
        for constant in ast.walk(argument)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    ]
    assert not [text for text in opened if text.endswith(("params.yaml", "dvc.yaml", "dvc.lock"))]


@pytest.mark.parametrize("path", STAGES, ids=name_of)
def test_commands_load_nothing_heavy_before_they_are_asked_for(path):
    if name_of(path) == "stages.support.training":
        return  # imported inside commands only, which the test of --help proves
    heavy = {
        "torch",
        "torchvision",
        "timm",
        "pandas",
        "numpy",
        "pyarrow",
        "PIL",
        "matplotlib",
        "sklearn",
        "jinja2",
        "safetensors",
    }
    light = {"dicap", "dicap.errors", "dicap.files.atomic", "dicap.files.locks", "dicap.machine.processes"}
    light |= {"dicap.settings", *(f"dicap.settings.{name}" for name in ("catalogue", "checks", "methods", "resolve"))}
    for node in tree_of(path).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            top = ast.Module([node], [])
            assert not packages(top) & heavy, f"{path}: {ast.unparse(node)}"
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dicap"):
                assert node.module in light, f"{path}: {ast.unparse(node)} belongs inside the function"


def public(tree):
    """Public functions, classes and their public methods."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (
                    member for member in node.body if isinstance(member, ast.FunctionDef) and not member.name.startswith("_")
                )


# Methods whose meaning another class gives: forward of a torch module, and what click, io and sequences ask for.
INHERITED = {"forward", "write", "flush", "list_commands", "get_command", "format_commands", "read", "gather"}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_class_and_public_function_says_what_it_is(path):
    tree = tree_of(path)
    if tree.body:
        assert ast.get_docstring(tree), f"{path.relative_to(ROOT)} has no docstring"
    silent = [node.name for node in public(tree) if not ast.get_docstring(node) and node.name not in INHERITED]
    assert not silent, f"{path.relative_to(ROOT)}: no docstring: {', '.join(silent)}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nothing_happens_at_import(path):
    """Module level holds definitions and constants: no file is opened, no seed set, no thread count changed."""
    for node in tree_of(path).body:
        assert not isinstance(node, ast.With | ast.For | ast.While | ast.Try), f"{path}:{node.lineno}"
        if isinstance(node, ast.Expr):
            assert isinstance(node.value, ast.Constant), f"{path}:{node.lineno}: {ast.unparse(node)[:80]}"


def tracked():
    return [ROOT / name for name in tiny.listed() if (ROOT / name).is_file()]


def test_no_file_names_a_package_index_or_a_place_on_somebodys_machine():
    addresses = re.compile(
        r"https?://[^\s\"']*(?:/simple\b|pypi|anaconda|conda\.|nexus|artifactory|jfrog)|--(?:extra-)?index-url|--trusted-host"
        r"|/(?:home|Users|root)/\w+",
        re.IGNORECASE,
    )
    found = []
    for path in tracked():
        if path == Path(__file__) or path.suffix in (".png", ".jpg", ".npy", ".parquet", ".safetensors"):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}: {hit.group()}" for hit in addresses.finditer(text)]
    assert not found


def test_what_the_pipeline_makes_is_ignored_and_untracked():
    names = [path.relative_to(ROOT).parts[0] for path in tracked()]
    assert not {"artifacts", ".dicap"} & set(names)
    assert [path.name for path in tracked() if path.relative_to(ROOT).parts[0] == "data"] == ["README.md"]
    lines = (ROOT / ".gitignore").read_text().split()
    assert {"/data/converted/", "/artifacts/", "/.dicap/", "__pycache__/"} <= set(lines)
    assert "__pycache__/" in (ROOT / ".dvcignore").read_text().split()


def test_no_tracked_file_is_a_leftover():
    assert not [
        path for path in tracked() if path.suffix in (".orig", ".rej", ".tmp", ".pyc", ".swp") or path.name == ".DS_Store"
    ]
