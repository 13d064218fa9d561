"""Outputs of commits and experiments, read from Git and from DVC's cache themselves.

`dvc exp show` opens every commit of a repository one after the other, which takes minutes in one of a few hundred. Here Git is
asked for all at once, and what has the same dvc.lock as another commit is looked at once.
"""

import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from dicap.errors import DataError, first_line
from stages.support.git import git, run_git

LOCK = "dvc.lock"
EXPERIMENT = re.compile(r"refs/exps/([0-9a-f]{2})/([0-9a-f]{38})/(.+)")  # of a finished one: its parent's id, its name


@dataclass(frozen=True)
class Revision:
    """A commit or a finished experiment.

    Attributes:
        name: of the experiment, of a branch or tag that points there, or the first letters of `rev`.
        when: time of the commit, in seconds since 1970: a text with a time zone does not sort.
        lock: blob of dvc.lock.
    """

    name: str
    rev: str
    when: str
    lock: str


def revisions(*, everywhere: bool) -> list[Revision]:
    """Commits and experiments whose dvc.lock differ, the latest of those that are alike, newest first.

    Args:
        everywhere: of all commits; otherwise the current commit and its experiments.

    Raises:
        DataError: this is no Git repository.
    """
    head = current_commit()
    experiments: dict[str, str] = {}
    for line in git("for-each-ref", "--format=%(objectname) %(refname)", "refs/exps").splitlines():
        rev, _, ref = line.partition(" ")
        found = EXPERIMENT.fullmatch(ref)
        if found and (everywhere or found[1] + found[2] == head):
            experiments[rev] = found[3]
    places = git("for-each-ref", "--format=%(objectname) %(refname:short)", "refs/heads", "refs/tags").splitlines()
    names = {rev: name for rev, _, name in (line.partition(" ") for line in reversed(places))} | experiments
    wanted = [*experiments, "--branches", "--tags", "HEAD"] if everywhere else ["--no-walk=unsorted", *experiments, "HEAD"]
    log = git("log", "--format=%H %ct", *wanted, "--").splitlines()
    # Newest first; of one second, in the order of Git, which has children before their parents.
    commits = sorted(dict.fromkeys(tuple(line.split(" ")) for line in log), key=lambda pair: pair[1], reverse=True)
    found_once: dict[str, Revision] = {}
    for (rev, when), lock in zip(commits, _blobs([f"{rev}:./{LOCK}" for rev, _ in commits]), strict=True):
        if lock is not None:
            found_once.setdefault(lock, Revision(names.get(rev, rev[:7]), rev, when, lock))
    return list(found_once.values())


def text_of(blobs: Iterable[str]) -> dict[str, str]:
    """The texts of blobs by their ids."""
    wanted = list(dict.fromkeys(blobs))
    if not wanted:
        return {}
    answer = run_git(["cat-file", "--batch"], "\n".join(wanted) + "\n")
    texts, place = {}, 0
    for _ in wanted:
        end = answer.index(b"\n", place)
        name, _, size = answer[place:end].decode().split(" ")
        texts[name] = answer[end + 1 : end + 1 + int(size)].decode("utf-8", "replace")
        place = end + 2 + int(size)
    return texts


@dataclass
class Stage:
    """A stage of a dvc.lock: the checksums of its inputs and of its results, by path."""

    deps: dict[str, str] = field(default_factory=dict)
    outs: dict[str, str] = field(default_factory=dict)


def stages_of(lock: str) -> dict[str, Stage]:
    """The stages in the text of a dvc.lock."""
    from ruamel.yaml import YAML

    def checksums(entries: list[dict[str, str]]) -> dict[str, str]:
        return {entry["path"]: entry["md5"] for entry in entries if "md5" in entry}

    stages = (YAML(typ="safe").load(lock) or {}).get("stages", {})
    return {name: Stage(checksums(stage.get("deps", [])), checksums(stage.get("outs", []))) for name, stage in stages.items()}


def cached_files(lock: str, path: str) -> dict[str, Path]:
    """Where DVC's cache holds the files of an output, or of a part of one, by their paths below `path`; `.`: a file itself.

    Args:
        lock: the text of dvc.lock; path: relative to the project, with forward slashes.

    Returns:
        Nothing where the cache lacks any of them.
    """
    cache = cache_folder(Path.cwd())
    outs = {out: md5 for stage in stages_of(lock).values() for out, md5 in stage.outs.items()}
    for out in map(str, (PurePosixPath(path), *PurePosixPath(path).parents)):
        if out not in outs:
            continue
        place, below = in_cache(cache, outs[out]), PurePosixPath(path).relative_to(out)
        if not place.exists():
            return {}
        if not outs[out].endswith(".dir"):
            return {".": place} if out == path else {}
        try:
            entries: list[dict[str, Any]] = json.loads(place.read_bytes())
        except ValueError:
            return {}
        inner = [(PurePosixPath(entry["relpath"]), in_cache(cache, entry["md5"])) for entry in entries]
        files = {name.relative_to(below).as_posix(): place for name, place in inner if name.is_relative_to(below)}
        return files if all(place.exists() for place in files.values()) else {}
    return {}


def fetch(rev: str, path: str, folder: Path) -> Path | None:
    """Copy an output of a commit, a file or a folder, from the cache into `folder`; None where the cache does not hold it."""
    (lock,) = _blobs([f"{rev}:./{LOCK}"])
    files, out = {} if lock is None else cached_files(text_of([lock])[lock], path), folder / rev[:12] / path
    for name, place in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(place, out / name)
    return out if files else None


def in_cache(cache: Path, md5: str) -> Path:
    """Where DVC's cache keeps the content of a checksum, as dvc.lock writes it (with `.dir` for the list of a folder)."""
    return cache / "files" / "md5" / md5[:2] / md5[2:]


def cache_folder(project: Path) -> Path:
    """Where DVC keeps a project's results."""
    root = next((place for place in (project, *project.parents) if (place / ".dvc").is_dir()), project)
    return Path(_config(root).get("cache", {}).get("dir", root / ".dvc" / "cache"))


@lru_cache(maxsize=4)
def _config(root: Path) -> dict[str, Any]:
    """DVC's settings: the system's, the user's, the project's, and the project's own on this machine. Raises DataError."""
    from dvc.config import Config, ConfigError

    try:
        return Config(str(root / ".dvc"), validate=False)
    except ConfigError as error:
        raise DataError(f"{root / '.dvc'}: {first_line(error)}") from None


def _blobs(names: list[str]) -> list[str | None]:
    """The ids of files named as `revision:path`; None for those that are not there."""
    answer = run_git(["cat-file", "--batch-check"], "\n".join(names) + "\n").decode().splitlines()
    return [line.split(" ")[0] if line.endswith(tuple("0123456789")) and " blob " in line else None for line in answer]


def current_commit() -> str:
    """The commit that is checked out. Raises DataError where this is no Git repository, or nothing is committed."""
    try:
        return git("rev-parse", "--verify", "HEAD").strip()
    except DataError as error:
        if "single revision" not in str(error):
            raise
        raise DataError("git: nothing is committed yet; git add -A && git commit -m start") from None
