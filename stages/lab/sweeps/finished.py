"""The finished experiments, read directly from Git and DVC's cache.

`dvc exp show` opens the whole pipeline of every commit, which takes minutes for a few hundred. This module reads only dvc.lock,
and equal versions of it only once.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pydantic import ValidationError

from dicap.errors import DataError, first_line
from stages.support.git import git

LOCK = "dvc.lock"
METRICS = "artifacts/evaluate/details.json"
REPORT, SETTINGS = "artifacts/report", "artifacts/report/settings.json"  # the settings that were in force in the run
CONVERTED = "data/converted"
_EXPERIMENT = re.compile(r"refs/exps/([0-9a-f]{2})/([0-9a-f]{38})/(.+)")  # a finished experiment: parent commit, name


class Revision(NamedTuple):
    """A commit or a finished experiment."""

    name: str  # name of the experiment, or the first digits of `rev`
    rev: str
    when: str  # seconds since 1970, which sort, unlike dates with time zones
    lock: str  # the text of dvc.lock


class Stage(NamedTuple):
    """A stage of a dvc.lock: the checksums of its inputs and of its results, by path."""

    deps: dict[str, str]
    outs: dict[str, str]


def finished(*, everywhere: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """Every finished experiment, and a sentence about each one that was left out.

    Args:
        everywhere: experiments of all commits, not only of the current commit.

    An experiment is {name, rev, when, settings (nested, in force when it ran), metrics, data (checksum of the converted set),
    inputs ({path: checksum} of all inputs that no stage made)}. Raises DataError outside a Git repository.
    """
    from dicap.settings import Settings
    from dicap.settings.methods import METHODS

    cache = Path(dvc_config(Path.cwd())["cache"]["dir"])
    experiments, notes, absent = [], [], 0
    for revision in reversed(revisions(everywhere=everywhere)):
        stages = stages_of(revision.lock)
        stage_of = {path: stage for stage in stages.values() for path in stage.outs}
        if REPORT not in stage_of:
            continue  # before the first run
        if not _is_consistent(REPORT, stage_of):  # for example after `dvc repro train` with other settings
            notes.append(f"{revision.name}: left out, its scores are from an earlier run than its model or data.")
            continue
        outs = {path: stage.outs[path] for path, stage in stage_of.items()}
        metrics, written = (_json(cache, outs, path) for path in (METRICS, SETTINGS))
        if metrics is None or written is None:
            absent += 1
            continue
        try:
            settings = Settings.model_validate(written).model_dump()
        except ValidationError as error:
            key = ".".join(map(str, error.errors()[0]["loc"]))
            notes.append(f"{revision.name}: left out, its settings are no longer valid ({key}).")
            continue
        if (method := settings["method"]) not in METHODS:
            notes.append(f"{revision.name}: left out, this version has no method {method!r}.")
            continue
        facts = {"name": revision.name, "rev": revision.rev, "when": revision.when, "data": outs.get(CONVERTED, "")}
        inputs = {path: md5 for stage in stages.values() for path, md5 in stage.deps.items() if path not in outs}
        experiments.append(facts | {"settings": settings, "metrics": metrics, "inputs": inputs})
    if absent:
        remedy = "no DVC remote is set; `dvc repro` runs this commit again, `dicap-stage sweep` the cells of a grid."
        if "remote" in dvc_config(Path.cwd()).get("core", {}):
            remedy = f"`dvc fetch{' --all-commits' if everywhere else ''}` gets them from the remote."
        runs = f"{absent} run{'s' if absent > 1 else ''}"
        notes.append(f"left out {runs} whose results are missing from DVC's cache or damaged; {remedy}")
    return experiments, notes


def revisions(*, everywhere: bool) -> list[Revision]:
    """Commits and experiments with different dvc.lock files, newest first; of equal files the latest. Raises DataError.

    Args:
        everywhere: all commits; else the current commit and its experiments.
    """
    head = current_commit()
    names: dict[str, str] = {}
    for line in git("for-each-ref", "--format=%(objectname) %(refname)", "refs/exps").splitlines():
        rev, _, ref = line.partition(" ")
        match = _EXPERIMENT.fullmatch(ref)
        if match and (everywhere or match[1] + match[2] == head):
            names[rev] = match[3]
    # Everywhere: all commits that changed the lock.
    history = ["--date-order", "--full-history", *names, "--branches", "--tags", "HEAD", "--", LOCK]
    arguments = history if everywhere else ["--no-walk", *names, "HEAD"]
    found: dict[str, Revision] = {}
    for line in git("log", "--format=%H %ct", *arguments).splitlines():  # newest first
        rev, _, when = line.partition(" ")
        with contextlib.suppress(DataError):  # the commit has no lock
            lock = git("show", f"{rev}:./{LOCK}")
            found.setdefault(lock, Revision(names.get(rev, rev[:7]), rev, when, lock))
    return list(found.values())


def current_commit() -> str:
    """The current commit. Raises DataError outside a Git repository, or if nothing is committed."""
    try:
        return git("rev-parse", "--verify", "HEAD").strip()
    except DataError as error:
        if "single revision" not in str(error):
            raise
        raise DataError("git: nothing is committed yet; git add -A && git commit -m start") from None


def stages_of(lock: str) -> dict[str, Stage]:
    """The stages in the text of a dvc.lock."""
    from ruamel.yaml import YAML

    def checksums(entries: list[dict[str, str]]) -> dict[str, str]:
        return {entry["path"]: entry["md5"] for entry in entries if "md5" in entry}

    stages = (YAML(typ="safe").load(lock) or {}).get("stages", {})
    return {name: Stage(checksums(stage.get("deps", [])), checksums(stage.get("outs", []))) for name, stage in stages.items()}


@lru_cache(maxsize=4)
def dvc_config(project: Path) -> Mapping[str, Any]:
    """DVC's merged configuration of system, user and project, always with `cache.dir`. Raises DataError."""
    from dvc.config import Config, ConfigError

    root = next((folder for folder in (project, *project.parents) if (folder / ".dvc").is_dir()), project)
    try:
        config = Config(str(root / ".dvc"), validate=False)
    except ConfigError as error:
        raise DataError(f"{root / '.dvc'}: {first_line(error)}") from None
    config.setdefault("cache", {}).setdefault("dir", str(root / ".dvc" / "cache"))  # type: ignore[attr-defined]
    return config


def _is_consistent(path: str, stage_of: Mapping[str, Stage]) -> bool:
    """Whether a result and its inputs, recursively, come from one run by their checksums. stage_of: the stage of each result."""
    deps = [(dep, md5) for dep, md5 in stage_of[path].deps.items() if dep in stage_of]
    return all(stage_of[dep].outs[dep] == md5 and _is_consistent(dep, stage_of) for dep, md5 in deps)


def _json(cache: Path, outs: Mapping[str, str], path: str) -> dict[str, Any] | None:
    """The content of a JSON file of an output folder; None if it is missing from this machine's cache or damaged."""
    folder, name = PurePosixPath(path).parent, PurePosixPath(path).name
    try:
        entries = json.loads(_in_cache(cache, outs[str(folder)]).read_bytes())
        (md5,) = (entry["md5"] for entry in entries if entry["relpath"] == name)
        data = _in_cache(cache, md5).read_bytes()
    except (OSError, ValueError, KeyError):
        return None
    return json.loads(data) if hashlib.md5(data).hexdigest() == md5 else None


def _in_cache(cache: Path, md5: str) -> Path:
    """The path in DVC's cache of a checksum in dvc.lock (with `.dir` for the list of a folder)."""
    return cache / "files" / "md5" / md5[:2] / md5[2:]
