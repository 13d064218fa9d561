"""What `from dicap import ...` gives: every name has an example in its docstring, and the examples run."""

import doctest
import inspect
import shutil
import subprocess
import sys

import pytest
import tiny

import dicap

NAMES = [name for name in dicap.__all__ if name != "__version__"]


def examples(thing) -> list[doctest.DocTest]:
    """The examples of a function or class, which see what its module sees."""
    space = vars(sys.modules[thing.__module__]).copy()
    return [test for test in doctest.DocTestFinder(recurse=False).find(thing, thing.__name__, globs=space) if test.examples]


@pytest.fixture
def place(raw_photos, model_file, tmp_path, monkeypatch):
    """A folder as the examples assume it: 48 photographs with labels.csv, and a model."""
    shutil.copytree(raw_photos, tmp_path / "photographs")
    shutil.copy(model_file, tmp_path / "model.safetensors")
    monkeypatch.chdir(tmp_path)
    with tiny.warm_commands():
        yield


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_each_public_name_runs(name, place):
    (example,) = examples(getattr(dicap, name))
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    out: list[str] = []
    runner.run(example, out=out.append)
    assert runner.tries and not runner.failures, "".join(out)


def test_the_paper_comes_first_and_importing_the_package_loads_nothing():
    source = inspect.getsource(dicap)
    assert source.index("correctness_weight") < source.index("predict")
    code = "import sys, dicap; sys.exit(sorted({'torch', 'numpy'} & set(sys.modules)) or 0)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tiny.ROOT).returncode == 0


def test_the_example_of_the_paper_runs_at_toy_size_and_trains_both_with_as_many_steps(monkeypatch, capsys):
    """The whole of it takes minutes; here one epoch on few of its scenes."""
    monkeypatch.syspath_prepend(tiny.ROOT / "examples")
    import dicap_in_150_lines as example

    sizes = {"N": 120, "N_TEST": 60, "N_LABELLED": 30, "WARMUP_STEPS": 2, "EPOCHS": 1, "FINETUNE_STEPS": 1}
    for name, value in sizes.items():
        monkeypatch.setattr(example, name, value)
    example.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all("6 steps each" in line and "labelled only" in line for line in lines)
    text = (tiny.ROOT / "examples" / "dicap_in_150_lines.py").read_text()
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 150
