"""Every bad input ends in one clear line and an exit code, and changes nothing; docs/errors.md lists what is said."""

import os
import re
import shutil
from pathlib import Path

import pytest
import tiny
from bad_inputs import CASES, GROUPS

DOCUMENT = tiny.ROOT / "docs" / "errors.md"
INTRODUCTION = """# What is said when an input is wrong

Every mistake is told in one line that names the file or the setting, what was found, and what to do. Exit code 2 is for
settings and options, 1 for files and data. A command that refuses its input changes nothing that was made before. `dvc repro`
removes what a stage made just before it runs the stage again; so that a mistake costs nothing there either, settings, labels
and photographs are checked first, in a stage of their own (`check`). The list is written by the tests
(`tests/stages/bad_inputs.py`), which make each mistake and compare. `<project>` is the project's folder; `(…)` stands for the
words of a library.

DVC has words of its own after it was killed. `RWLock-file ... had been killed. Auto removed` is a warning at the next start:
nothing is lost. `... is busy, it is being blocked by` names a process that has not ended yet: wait for it, or end it with `kill`.
"""
AFTER = "\n## What people have on disk"  # written by tests/photos/test_awkward.py
ROW = re.compile(r"\| (.+?) \| `(.+?)` \| `` (.+?) `` \| (\d) \|")


@pytest.fixture(scope="module")
def told():
    """What each mistake led to, by its name; written down at the end where that was asked for."""
    told = {}
    yield told
    if os.environ.get("WRITE_ERRORS") and len(told) == len(CASES):
        text = INTRODUCTION
        tail = DOCUMENT.read_text(encoding="utf-8").partition(AFTER)
        for title, cases in GROUPS.items():
            text += f"\n## {title}\n\n| what is wrong | what is typed | what is said | exit code |\n| --- | --- | --- | --- |\n"
            text += "".join(row(case, told[case.what]) for case in cases)
        DOCUMENT.write_text(text + tail[1] + tail[2], encoding="utf-8")


def row(case, line):
    return f"| {case.what} | `dicap-stage {case.command}` | `` {line} `` | {case.code} |\n"


def documented():
    return {match[1]: match.groups()[1:] for match in ROW.finditer(DOCUMENT.read_text(encoding="utf-8"))}


def files():
    """Everything in the working directory but the state, locks, and the list of rejected images that convert leaves."""
    return {
        str(path): path.read_bytes()
        for path in Path().rglob("*")
        if path.is_file() and not str(path).startswith(".dicap") and path.suffix != ".lock" and "rejected" not in path.name
    }


@pytest.mark.promise("No image is in both train and test under two spellings of its name", section="Hidden and held-out labels")
@pytest.mark.promise("Every bad input ends in one clear line and an exit code ([list](errors.md))", section="Bad input and harm")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_a_bad_input_is_one_clear_line_and_loses_nothing(project, raw_photos, told, case):
    shutil.copytree(raw_photos, "photos")
    project.set({"data_root": "photos"})
    project.set(case.spoil) if isinstance(case.spoil, dict) else case.spoil(project)
    before = files()

    code, out, errors = project.run(*case.command.split())  # a traceback would be raised here

    lines = [line.split("Error: ", 1)[1] for line in errors.splitlines() if "Error: " in line]
    assert code == case.code and lines, (code, out, errors)
    assert all(line.isprintable() for line in lines)
    assert files() == before
    assert not Path("planted").exists(), "an object from a file was made"
    told[case.what] = shown(case, "; ".join(lines), project.folder)
    if not os.environ.get("WRITE_ERRORS"):
        command, line, documented_code = documented()[case.what]
        said = f"dicap-stage {case.command}", told[case.what], code
        assert (command, line, int(documented_code)) == said, f"WRITE_ERRORS=1 python -m pytest {__file__} writes {DOCUMENT.name}"


def shown(case, line, folder):
    """The line as it stands in the document: without what differs from run to run."""
    line = re.sub(r"-[0-9a-f]{16}\b", "-<run>", line.replace(str(folder), "<project>"))
    return re.sub(r"\(.*\)", "(…)", line) if case.vague else line


@pytest.mark.skipif("WRITE_ERRORS" in os.environ, reason="it is being written")
def test_the_document_holds_every_mistake_and_no_other():
    names = [case.what for case in CASES]
    assert len(set(names)) == len(names)
    assert list(documented()) == names
