"""What code a module runs: the modules it imports, found without importing them, and a digest of each.

A digest stands for what Python executes: comments, docstrings, blank lines and line breaks leave it as it is.
"""

import ast
import hashlib
from collections.abc import Container, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]  # of the packages that are running
PACKAGES = ("dicap", "stages")
_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


class Choice(NamedTuple):
    """What a package that imports one of several modules by name takes: the candidates, and the one."""

    candidates: frozenset[str]
    module: str | None


def closure(module: str, skip: Container[str], choices: Mapping[str, Choice], root: Path = ROOT) -> set[str]:
    """Modules of this project that `module` imports, directly or through others, and itself.

    Args:
        module: dotted name.
        skip: modules that are left out, and what only they import.
        choices: by the dotted name of a registry; of its candidates only the one is followed from there.
    """
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found or name in skip:
            continue
        found.add(name)
        for other in _imports(source_file(name, root).read_text(encoding="utf-8")):
            target = _module(other, root)
            if target is not None and not (name in choices and target in choices[name].candidates):
                waiting += _with_packages(target)
        if name in choices and (module_of := choices[name].module):
            waiting += _with_packages(module_of)
    return found


def digests(modules: set[str], root: Path = ROOT) -> dict[str, str]:
    """sha256 of each module's code, by dotted name; and of the other files that lie in a package among them, by path."""
    sums = {}
    for name in sorted(modules):
        path = source_file(name, root)
        sums[name] = code_digest(path.read_text(encoding="utf-8"))
        if path.name == "__init__.py":
            for other in _resources(path.parent):
                sums[other.relative_to(root).as_posix()] = hashlib.sha256(other.read_bytes()).hexdigest()
    return sums


def source_file(module: str, root: Path = ROOT) -> Path:
    """The file of a module. Raises FileNotFoundError where there is none."""
    path = root.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.is_file():
        raise FileNotFoundError(file)
    return file


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def code_digest(source: str) -> str:
    """sha256 of what a module's source does; the same on every version of Python."""
    return hashlib.sha256(_canonical(_parsed(source)).encode()).hexdigest()


@cache
def _imports(source: str) -> frozenset[str]:
    """Dotted names that a source imports when it runs, those of its functions included; not those for a type checker alone."""
    names: set[str] = set()
    waiting: list[ast.AST] = [_parsed(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            waiting += node.orelse
        else:  # no expression holds an import
            waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, _STATEMENTS)]
    return frozenset(name for name in names if name.split(".")[0] in PACKAGES)


def _canonical(value: Any) -> str:
    # ast.dump and ast.unparse differ between versions of Python; absent fields are left out, so that new ones change nothing.
    if isinstance(value, ast.AST):
        fields = [
            f"{name}={_canonical(item)}"
            for name, item in ast.iter_fields(value)
            if name not in ("ctx", "kind", "type_comment") and item is not None and item != []
        ]
        return f"{type(value).__name__}({','.join(fields)})"
    if isinstance(value, list):  # a string that stands alone does nothing: a docstring
        kept = [item for item in value if not (isinstance(item, ast.Expr) and _is_text(item.value))]
        return f"[{','.join(map(_canonical, kept))}]"
    return repr(value)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _module(name: str, root: Path) -> str | None:
    """The module that `from a.b import c` names: a.b.c where that is one, else a.b."""
    for candidate in (name, name.rpartition(".")[0]):
        path = root.joinpath(*candidate.split("."))
        if candidate and (path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()):
            return candidate
    return None


def _with_packages(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts) + 1)]


def is_leftover(name: str) -> bool:
    """Whether a file or folder of this name is hidden, or what an editor or a file manager leaves: nothing depends on it."""
    return name.startswith((".", "#")) or name.endswith("~") or name in ("Thumbs.db", "desktop.ini")


def _resources(folder: Path) -> Iterator[Path]:
    """Files of a package that are no code, those of folders that are no packages included."""
    for path in sorted(path for path in folder.iterdir() if not is_leftover(path.name)):
        if path.is_dir():
            if path.name != "__pycache__" and not (path / "__init__.py").exists():
                yield from _resources(path)
        elif path.suffix not in (".py", ".pyc"):
            yield path
