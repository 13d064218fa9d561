"""What a stage depends on: the modules found without importing them, digests that see code and nothing else."""

import ast
import json

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from dicap.provenance import source_code
from dicap.provenance.dependencies import REGISTRIES, STAGE_SETTINGS, code, modules, relevant
from dicap.provenance.source_code import Choice, closure, code_digest, digests
from dicap.settings.methods import METHODS

SOURCE = '''"""A module."""

import os  # for paths


def add(a, b=1):
    """The sum."""
    return a + b
'''


def test_comments_docstrings_and_line_breaks_change_nothing():
    plain = "import os\ndef add(a,\n  b = 1): return (a + b)\n"
    assert code_digest(plain) == code_digest(SOURCE)
    assert code_digest(SOURCE.replace("The sum.", "Another text.")) == code_digest(SOURCE)


@pytest.mark.parametrize(
    ("before", "after"),
    [("b=1", "b=2"), ("b=1", "b=True"), ("a + b", "b + a"), ("a + b", "a - b"), ("add", "plus"), ("b=1", "b")],
)
def test_code_changes_the_digest(before, after):
    assert code_digest(SOURCE.replace(before, after)) != code_digest(SOURCE)


@given(st.recursive(st.integers() | st.text(max_size=3) | st.none() | st.booleans(), lambda inner: st.lists(inner, max_size=3)))
def test_two_values_have_one_digest_only_if_they_are_written_alike(value):
    one = f"x = {value!r}"
    assert code_digest(one) == code_digest(f"# why\nx = (\n{value!r}\n)")
    assert (code_digest(one) == code_digest("x = [1, 'a']")) == (ast.dump(ast.parse(one)) == ast.dump(ast.parse("x = [1, 'a']")))


@pytest.fixture
def package(tmp_path):
    """A small package: a imports b where it runs, c for type checkers; the registry takes one of two by name."""
    files = {
        "dicap/__init__.py": "",
        "dicap/a.py": "if TYPE_CHECKING:\n    from dicap.c import C\ndef f():\n    from dicap import b\n",
        "dicap/b.py": "import dicap.kinds\nimport json\n",
        "dicap/c.py": "",
        "dicap/kinds/__init__.py": "from dicap.kinds.base import Base\nfrom dicap.kinds import one, two\n",
        "dicap/kinds/base.py": "from dicap import d\n",
        "dicap/kinds/one.py": "",
        "dicap/kinds/two.py": "",
        "dicap/kinds/table.txt": "1",
        "dicap/kinds/pages/page.html": "<p>",
        "dicap/d.py": "import dicap.a\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_closure_follows_what_runs(package):
    choices = {"dicap.kinds": Choice(frozenset({"dicap.kinds.one", "dicap.kinds.two"}), "dicap.kinds.two")}
    found = closure("dicap.a", {"dicap"}, choices, package)
    assert found == {f"dicap.{name}" for name in ("a", "b", "d", "kinds", "kinds.base", "kinds.two")}
    assert closure("dicap.a", {"dicap", "dicap.kinds"}, choices, package) == {"dicap.a", "dicap.b"}
    assert set(digests(found, package)) - found == {"dicap/kinds/table.txt", "dicap/kinds/pages/page.html"}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_depends_on_its_own_module_and_on_no_other_s_by_the_registry(method):
    settings = tiny.settings({"method": method, "head": METHODS[method].head})
    files = {f"dicap.methods.{name}" for name in METHODS}
    own = closure(f"dicap.methods.{method}", {"dicap", "dicap.methods"}, {})
    for stage in ("warmup", "train", "finetune", "evaluate"):
        assert modules(stage, settings) & files == own & files


def test_a_head_that_is_solved_has_the_solver_s_loops():
    solver = {"head": "linear", "linear.solver": "convex", "warmup.trainable": "head", "train.trainable": "head"}
    for method, facts in METHODS.items():
        settings = tiny.settings({"method": method, "head": facts.head} | (solver if facts.convex else {}))
        for stage in ("warmup", "train", "finetune"):
            loop = "dicap.frozen.loops.solved" in modules(stage, settings)
            assert loop == settings.solves(stage) == (facts.convex and stage != "finetune")


def test_every_import_by_name_is_a_registry_that_is_known():
    for path in (source_code.ROOT / "dicap").rglob("*.py"):
        if "import_module(" in path.read_text(encoding="utf-8"):
            name = ".".join(path.relative_to(source_code.ROOT).with_suffix("").parts).removesuffix(".__init__")
            assert name in {*REGISTRIES, "dicap", "dicap.training.loops.table", "dicap.plugins"}, path


def test_stages_depend_on_what_they_compute_with():
    """Batch sizes train; templates and the published tables are of the report alone."""
    settings = tiny.settings()
    assert {"dicap.settings.batch_sizes", "dicap.losses", "dicap.data.policy"} <= set(code("warmup", settings))
    by_curve = tiny.settings({"calibration.estimator": "class_score"})
    for estimated, chosen in ((False, settings), (True, by_curve)):
        assert ("dicap.frozen.estimators" in code("train", chosen)) == estimated and "dicap.calibration.rates" in code(
            "train", chosen
        )
    shown = set(code("report", settings))
    assert {"dicap/pages/templates/page.html", "dicap.report.page"} <= shown and "dicap/lab/published.yaml" not in shown
    assert not any("report" in name for stage in STAGE_SETTINGS if stage != "report" for name in code(stage, settings))


def test_the_command_writes_a_file_per_stage_that_a_comment_does_not_change(tmp_path, monkeypatch):
    from click.testing import CliRunner

    from stages.cli import main

    (tmp_path / "configs").symlink_to(tiny.ROOT / "configs")
    text = (tiny.ROOT / "params.yaml").read_text().replace("dataset: pictograms", "dataset: digits")
    monkeypatch.chdir(tmp_path)

    def resolved(text):
        (tmp_path / "params.yaml").write_text(text)
        done = CliRunner().invoke(main, ["resolve"])
        assert done.exit_code == 0, done.output
        return tiny.content(tmp_path / "artifacts" / "resolved")

    before = resolved(text)
    assert set(before) == {f"{stage}.json" for stage in STAGE_SETTINGS}
    content = json.loads(before["warmup.json"])
    assert content["settings"]["warmup"]["epochs"] == 60 and len(content["code"]["dicap.losses"]) == 64
    same = text.replace("warmup:\n  trainable:\n  epochs:", "warmup:\n  trainable:\n  epochs: 60  # as before")
    assert same != text and resolved(same) == before, "the value that was in force"
    after = resolved(text.replace("finetune:\n  enabled:\n  epochs:", "finetune:\n  enabled:\n  epochs: 3"))
    assert {name for name in after if after[name] != before[name]} == {"finetune.json", "report.json"}


def test_only_relevant_settings_are_compared():
    values = relevant(tiny.settings(), "split")
    assert values == {"dataset": "table", "ratio": 0.5, "seed": 1, "split": {"est_fraction": 0.3}}
