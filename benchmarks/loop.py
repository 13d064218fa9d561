"""Processor seconds of the loop in which people label: `suggest`, twenty labels, `import-labels`, `dvc repro` to the report.

    python benchmarks/loop.py --photographs FOLDER --place FOLDER [--labelled 450] [--count 20]

FOLDER has a labels.csv of image, split and labels. --place keeps what is made between calls: a copy of the photographs, in which
all but some of the training images have lost their labels and a hundred photographs are left out, and a project on it, whose
first run computes all features. Measured is a copy of the project: the loop; then `dvc repro` with the hundred photographs added,
with one of them removed, and with the list sorted. Seconds are the processor's, of a command and what it started, DVC and each
stage apart; of how many images features were computed is what the stage says.

Writes loop.json among the results; its last line is `loop ratio=R target=1`, R: 25 s over those of `dvc repro` after the labels.
"""

import csv
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import Parser, finish

ROOT = Path(__file__).parents[1]
SECONDS = 25.0
ADDED = 100
# Loaded by each Python process of a command at its start: says at its end what it took, children not counted.
WATCH = """
import atexit, builtins, json, os, sys, time
load, spent, inside = builtins.__import__, 0.0, False
def watched(*arguments, **more):
    global spent, inside
    if inside:
        return load(*arguments, **more)
    inside, begin = True, time.process_time()
    try:
        return load(*arguments, **more)
    finally:
        inside, spent = False, spent + time.process_time() - begin
def say(pid=os.getpid()):
    if os.getpid() == pid:
        took = {"words": sys.argv[:2], "seconds": time.process_time(), "imports": spent, "workers": sum(os.times()[2:4])}
        with open(os.environ["LOOP_LOG"], "a") as log:
            print(json.dumps(took), file=log)
builtins.__import__ = watched
atexit.register(say)
"""


def measured(words: list[str], folder: Path) -> dict[str, Any]:
    """Processor seconds of a command, in all and by the processes that it consists of, and what it printed."""
    with tempfile.TemporaryDirectory() as place:
        Path(place, "sitecustomize").with_suffix(".py").write_text(WATCH)
        log = Path(place, "log")
        path = os.pathsep.join(filter(None, (place, str(ROOT), os.environ.get("PYTHONPATH"))))
        before = os.times()
        done = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path, "LOOP_LOG": str(log)}
        )
        after = os.times()
        if done.returncode:
            sys.exit(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        parts = {}
        for one in map(json.loads, log.read_text().splitlines()):
            program, *stage = (Path(word).name for word in one["words"])
            name = stage[0] if program == "dicap-stage" and stage else program
            took = one["seconds"] + (one["workers"] if name != "dvc" else 0)  # what DVC started stands beside it
            parts[name] = {"seconds": round(took, 2), "imports": round(one["imports"], 2)}
    seconds = round(after.children_user + after.children_system - before.children_user - before.children_system, 2)
    computed = re.search(r"images computed +(\d+)", done.stdout)
    print(f"{' '.join(words[:2]):36}{seconds:>7.1f} s{f', {computed[1]} images computed' if computed else ''}")
    for name, part in parts.items():
        print(f"    {name:32}{part['seconds']:>7.1f} s, of which imports {part['imports']:.1f} s", flush=True)
    return {"seconds": seconds, "parts": parts} | ({"images computed": int(computed[1])} if computed else {})


def listed(folder: Path) -> list[dict[str, str]]:
    """The rows of a folder's list."""
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_list(folder: Path, rows: list[dict[str, str]]) -> None:
    """Write a folder's list."""
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["image", "split", "labels"], lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def make_project(photographs: Path, place: Path, labelled: int) -> None:
    """The photographs without those that are added later, most without labels; a project on them that has run once."""
    rows, data = listed(photographs), place / "photographs"
    train = [row["image"] for row in rows if row["split"] == "train"]
    random.Random(0).shuffle(train)
    added, known = set(train[:ADDED]), set(train[ADDED : ADDED + labelled])
    for row in rows:
        target = (place / "added" if row["image"] in added else data) / row["image"]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(photographs / row["image"], target)
        if row["split"] == "train" and row["image"] not in known:
            row["labels"] = ""
    write_list(data, [row for row in rows if row["image"] not in added])
    write_list(place / "added", [row for row in rows if row["image"] in added])
    measured(["dicap-stage", "new", "project", "--from", "photographs", "--empty", "unlabeled"], place)
    measured(["dvc", "repro"], place / "project")


def label(project: Path) -> None:
    """Fill in what the model says; `-` where it says nothing."""
    listing = project / "suggest" / "labels.csv"
    with listing.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with listing.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {"labels": row["model_says"] or "-"} for row in rows)


def loop(place: Path, count: int) -> dict[str, Any]:
    """The loop in a copy of the project, then with other photographs."""
    data, project, repro = place / "photographs", place / "copy", ["dvc", "repro"]
    before = listed(data)
    shutil.rmtree(project, ignore_errors=True)
    subprocess.run(["cp", "--archive", "--reflink=auto", str(place / "project"), str(project)], check=True)
    found = {"suggest": measured(["dicap-stage", "suggest", "--count", str(count)], project)}
    label(project)
    found["import-labels"] = measured(["dicap-stage", "import-labels", "suggest/labels.csv"], project)
    found["dvc repro"] = measured(repro, project)
    added = listed(place / "added")
    try:
        for row in added:
            shutil.copyfile(place / "added" / row["image"], data / row["image"])
        write_list(data, before + added)
        found[f"dvc repro, {ADDED} photographs added"] = measured(repro, project)
        (data / added[0]["image"]).unlink()
        write_list(data, before + added[1:])
        found["dvc repro, one removed"] = measured(repro, project)
        write_list(data, sorted(before + added[1:], key=lambda row: row["image"], reverse=True))
        found["dvc repro, the list sorted"] = measured(repro, project)
    finally:
        for row in added:
            (data / row["image"]).unlink(missing_ok=True)
        write_list(data, before)
    return found


def main() -> int:
    """Make the project where it is missing, run the loop, write."""
    given = Parser(__doc__, "loop")
    given.add_argument("--photographs", type=Path, help="real photographs: a folder with labels.csv")
    given.add_argument("--place", type=Path, help="where the project is kept")
    given.add_argument("--labelled", type=int, default=450)
    given.add_argument("--count", type=int, default=20)
    options = given.options()
    if options.smoke:
        found = {"dvc repro": measured(["dicap-stage", "config"], ROOT)}
    else:
        place = options.place.absolute()
        if not (place / "project" / "artifacts" / "report").exists():
            make_project(options.photographs.absolute(), place, options.labelled)
        found = loop(place, options.count)
    return finish("loop", {"commands": found}, SECONDS / found["dvc repro"]["seconds"], 1.0, options)


if __name__ == "__main__":
    sys.exit(main())
