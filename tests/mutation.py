"""Change one sign, bound, constant or comparison of the mathematics at a time, and see whether a test notices.

    python tests/mutation.py            tries what has not been tried, and what survived earlier tests
    python tests/mutation.py --fresh    tries everything

Each mutant runs in a process of its own, forked from one that has imported the libraries: a second or two instead of ten.
Results are kept in .dicap/mutation.json, so a stopped run continues. Exit code 1 if a mutant survives that EQUIVALENT,
below, does not explain. Assertions, annotations and docstrings are left alone.
"""

import ast
import copy
import hashlib
import json
import os
import resource
import runpy
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / ".dicap" / "mutation.json"
TARGETS = {"dicap.losses": ["tests/test_losses.py"], "dicap.calibration": ["tests/test_calibration.py", "tests/test_numerics.py"]}
SECONDS = 60  # of the processor: a mutant that takes more hangs, which is noticed too

# Survivors that compute the same, and why.
CHUNK = "anchors are handled one by one: the size of a chunk only bounds memory"
PIECES = "a row's result depends on that row alone: pieces only keep temporaries in the cache"
ONLY = "a vector has one dimension, the first and the last"
EQUIVALENT = {
    "dicap.losses.nt_xent: 512 -> 513": CHUNK,
    "dicap.losses.nt_xent: 512 -> 511": CHUNK,
    "dicap.losses.nt_xent: 512 -> 1024": CHUNK,
    "dicap.losses.nt_xent: 2 -> 1": "a single pair has no negatives: the formula gives 0 with a gradient of 0 as well",
    "dicap.losses.nt_xent: z_w.float().sum() + z_s.float().sum() -> z_w.float().sum() - z_s.float().sum()": "times 0",
    "dicap.losses.forward: rows + n // 2 -> rows - n // 2": "modulo two times pairs it is the same partner",
    "dicap.calibration.bin_index: 0 -> -1": "a confidence is not negative, so this bound is never met",
    "dicap.calibration.count_bins: 0 -> -1": ONLY,
    "dicap.calibration.count_bins: 0 -> -1 (place 2)": ONLY,
    "dicap.calibration._fill_empty: 1 -> 2 (place 2)": "any negative place says that no bin was seen before",
    "dicap.calibration._fill_empty: 1 -> 2 (place 10)": "an empty bin between two seen ones lies in a gap of at least 2",
    "dicap.calibration._isotonic: True -> False": "the lengths that zip compares are always equal",
    "dicap.calibration.module: 2048 -> 2049": PIECES,
    "dicap.calibration.module: 2048 -> 2047": PIECES,
    "dicap.calibration.module: 2048 -> 4096": PIECES,
    "dicap.calibration._in_pieces: if tensors[0].device.type != 'cpu' or len(tensors[0]) <= PIECE:"
    " -> if not (tensors[0].device.type != 'cpu' or len(tensors[0]) <= PIECE):": PIECES,
    "dicap.calibration._in_pieces: tensors[0].device.type != 'cpu' or len(tensors[0]) <= PIECE"
    " -> tensors[0].device.type != 'cpu' and len(tensors[0]) <= PIECE": PIECES,
    "dicap.calibration._in_pieces: tensors[0].device.type != 'cpu' -> tensors[0].device.type == 'cpu'": PIECES,
    "dicap.calibration._in_pieces: len(tensors[0]) <= PIECE -> len(tensors[0]) < PIECE": PIECES,
    "dicap.calibration._in_pieces: len(tensors[0]) <= PIECE -> len(tensors[0]) > PIECE": PIECES,
    "dicap.calibration._in_pieces: 0 -> -1": "all tensors have the same rows and device",
    "dicap.calibration._in_pieces: 0 -> -1 (place 2)": "all tensors have the same rows and device",
    "dicap.calibration._in_pieces: True -> False": "the lengths that zip compares are always equal",
    "dicap.calibration._midrange: torch.zeros_like -> torch.ones_like": "the guard replaces what a class without entries gets",
    "dicap.calibration.curve_error: 0 -> -1": "without entries the quotient is not a number either",
}

BINARY = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.MatMult: ast.Add,
}  # fmt: skip
COMPARE = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
}  # fmt: skip
NAMES = {
    "amax": "amin", "amin": "amax", "cummax": "cummin", "cummin": "cummax", "clamp_min": "clamp_max",
    "clamp_max": "clamp_min", "any": "all", "all": "any", "zeros_like": "ones_like", "ones_like": "zeros_like",
    "floor": "ceil", "max": "min", "min": "max",
}  # fmt: skip


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Every small change of one node, each as a new node."""

    def changed(**fields: object) -> ast.AST:
        new = copy.deepcopy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        return new

    if (isinstance(node, ast.BinOp) and type(node.op) in BINARY) or (isinstance(node, ast.AugAssign) and type(node.op) in BINARY):
        yield changed(op=BINARY[type(node.op)]())
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Compare):
        for other in COMPARE.get(type(node.ops[0]), ()):
            yield changed(ops=[other()])
    elif isinstance(node, ast.BoolOp):
        yield changed(op=ast.And() if isinstance(node.op, ast.Or) else ast.Or())
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield changed(value=not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield from (changed(value=node.value + step) for step in (1, -1))
        if node.value not in (0, 1, -1):
            yield changed(value=node.value * 2)
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield changed(attr=NAMES[node.attr])
    elif isinstance(node, ast.IfExp):
        yield changed(body=node.orelse, orelse=node.body)
    elif isinstance(node, ast.If):
        yield changed(test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "where":
        yield changed(args=[node.args[0], node.args[2], node.args[1]])
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        yield ast.copy_location(ast.Pass(), node)


def places(tree: ast.Module) -> Iterator[tuple[str, ast.AST, Callable[[ast.AST], None]]]:
    """(function, node, put) for every node that may change; `put` puts another node in its place."""

    def visit(parent: ast.AST, function: str) -> Iterator[tuple[str, ast.AST, Callable[[ast.AST], None]]]:
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "returns", "decorator_list") or isinstance(parent, ast.Assert):
                continue
            for i, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(node, ast.AST) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                    continue
                name = node.name if isinstance(node, ast.FunctionDef | ast.ClassDef) else function

                def put(new: ast.AST, value=value, i=i, field=field) -> None:
                    if i is None:
                        setattr(parent, field, new)
                    else:
                        value[i] = new

                yield name, node, put
                yield from visit(node, name)

    yield from visit(tree, "module")


def mutants(module: str) -> Iterator[tuple[str, ast.Module]]:
    """(name, tree) of every mutant of a module."""
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    seen: dict[str, int] = {}
    for function, node, put in places(tree):
        for new in changes(node):
            name = f"{module}.{function}: {_text(node)} -> {_text(new)}"
            seen[name] = seen.get(name, 0) + 1
            put(new)
            yield name + (f" (place {seen[name]})" if seen[name] > 1 else ""), ast.fix_missing_locations(copy.deepcopy(tree))
            put(node)


def _text(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0]


def run_tests(path: str) -> None:
    """Call every test of a file, with all its parameters, the quick ones first; the first failure is raised.

    Collecting them as pytest does would take longer than running them. These files ask for no fixtures.
    """
    names = runpy.run_path(path)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    for test in sorted(tests, key=lambda test: hasattr(test, "hypothesis")):
        choices: list[dict[str, object]] = [{}]
        for mark in getattr(test, "pytestmark", []):
            keys, rows = mark.args
            keys = [key.strip() for key in keys.split(",")] if isinstance(keys, str) else list(keys)
            new = [dict(zip(keys, row if len(keys) > 1 else [row], strict=True)) for row in rows]
            choices = [old | chosen for old in choices for chosen in new]
        for chosen in choices:
            test(**chosen)


def noticed(module: str, tree: ast.Module) -> bool:
    """Whether the module's tests fail, in a forked process, when `tree` stands in its place."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            import dicap

            new = types.ModuleType(module)
            sys.modules[module] = new
            setattr(dicap, module.rsplit(".", 1)[1], new)
            exec(compile(tree, module, "exec"), new.__dict__)
            for path in TARGETS[module]:
                run_tests(path)
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] != 0


def warm_up() -> None:
    """Import what the tests import, and do once what takes a second the first time; no backward, which forbids a fork."""
    import hypothesis.extra.numpy  # noqa: F401
    import torch
    from sklearn.isotonic import IsotonicRegression
    from timm.loss import AsymmetricLossMultiLabel

    IsotonicRegression().fit([0.0, 1.0], [0.0, 1.0])
    with torch.no_grad():
        AsymmetricLossMultiLabel(reduction="none")(torch.zeros(1, 1), torch.zeros(1, 1))
    torch.testing.assert_close(torch.zeros(1), torch.zeros(1))


def main() -> int:
    """Try the mutants, print the survivors; the exit code."""
    warm_up()
    from hypothesis import settings

    settings.register_profile("mutation", deadline=None, derandomize=True, database=None, max_examples=25)
    settings.load_profile("mutation")
    os.chdir(ROOT)
    known = {} if "--fresh" in sys.argv or not RESULTS.exists() else json.loads(RESULTS.read_text(encoding="utf-8"))
    RESULTS.parent.mkdir(exist_ok=True)
    tried: dict[str, str] = {}  # "noticed", or the version of the tests that the mutant survived
    for module, tests in TARGETS.items():
        version = hashlib.sha256(b"".join((ROOT / test).read_bytes() for test in tests)).hexdigest()[:12]
        whole = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
        if noticed(module, whole):
            sys.exit(f"{' '.join(tests)} fails without any mutation")
        for name, tree in mutants(module):
            if known.get(name) in ("noticed", version):
                tried[name] = known[name]
            else:
                tried[name] = "noticed" if noticed(module, tree) else version
                RESULTS.write_text(json.dumps(known | tried, indent=1), encoding="utf-8")
                if tried[name] == version:
                    print(f"survived: {name}", flush=True)
    survivors = [name for name, found in tried.items() if found != "noticed"]
    unexplained = [name for name in survivors if name not in EQUIVALENT]
    print(f"{len(tried)} mutants, {len(survivors)} survived, {len(survivors) - len(unexplained)} of them equivalent")
    for name in unexplained:
        print(f"not explained: {name}")
    for name in EQUIVALENT.keys() - set(survivors):
        print(f"no longer a survivor: {name}")
    return bool(unexplained)


if __name__ == "__main__":
    sys.exit(main())
