"""The finished experiments and their files, as DVC knows them."""

import functools
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from dicap.errors import SettingsError
from stages.sweeps.revisions import Revision, cached, copy_of, has_remote, revisions, text_of

METRICS = "artifacts/evaluate/metrics.json"
IDENTITY = ("dataset", "method", "ratio", "seed")
# Lines that say nothing; they take nine tenths of the time to parse.
UNSET = re.compile(r"^([ \t]+\w+:[ \t]*(null[ \t]*)?|\w+: null[ \t]*|[ \t]*)(#.*)?\n", re.MULTILINE)


def finished(params: Path, *, everywhere: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """Every finished experiment, and a sentence about each that had to be left out.

    Args:
        params: the settings file of the project; experiments are resolved over the same configs folder.
        everywhere: those of all commits, not only of the current one.

    An experiment is {name, rev, when, settings (resolved, nested), metrics}. Raises DataError outside a Git repository.
    """
    from dicap.settings import parse_yaml, read_yaml, resolve_values

    found, notes = [], []
    read = functools.cache(read_yaml)
    results = list(_with_metrics(revisions(params.name, everywhere=everywhere)))
    texts = text_of(revision.params for revision, _ in results)
    resolved: dict[str, dict[str, Any] | str] = {}
    for revision, metrics in results:
        if revision.params not in resolved:
            try:
                values = parse_yaml(UNSET.sub("", texts[revision.params]), params)
                resolved[revision.params] = resolve_values(values, params, read=read).settings.model_dump()
            except SettingsError as error:
                resolved[revision.params] = str(error).splitlines()[0]
        settings = resolved[revision.params]
        if isinstance(settings, str):
            notes.append(f"{revision.name}: left out, its settings are no longer valid ({settings}).")
            continue
        # A commit whose params.yaml was edited without a run shows the scores of the old settings.
        if any(key in metrics and metrics[key] != settings[key] for key in IDENTITY):
            notes.append(f"{revision.name}: left out, its scores belong to other settings than its {params.name}.")
            continue
        facts = {"name": revision.name, "rev": revision.rev, "when": revision.when}
        found.append(facts | {"settings": settings, "metrics": metrics})
    return found, notes


def _with_metrics(found: list[Revision]) -> Iterator[tuple[Revision, dict[str, Any]]]:
    """Those that have run to the end, with what evaluate wrote; oldest first."""
    locks = text_of(revision.lock for revision in found)
    for revision in reversed(found):
        metrics = _metrics(revision, locks[revision.lock])
        if metrics:
            yield revision, metrics


def _metrics(revision: Revision, lock: str) -> dict[str, Any] | None:
    if f"path: {METRICS}" not in lock and f"path: {PurePosixPath(METRICS).parent}\n" not in lock:
        return None  # before the first run
    place = cached(lock, METRICS)
    try:
        if place is not None:
            return json.loads(place.read_text(encoding="utf-8"))
        if not has_remote():
            return None
        with tempfile.TemporaryDirectory() as folder:  # not in this machine's cache: DVC knows where else to look
            copy = Path(folder) / "metrics.json"
            return json.loads(copy.read_text(encoding="utf-8")) if _by_dvc(revision.rev, METRICS, copy) else None
    except ValueError:
        return None


def fetch(rev: str, path: str, folder: Path) -> Path | None:
    """Copy an output of an experiment into `folder`; None if DVC does not have it (any more)."""
    out = folder / rev[:12] / path
    out.parent.mkdir(parents=True, exist_ok=True)
    return out if _copied(rev, path, out) else None


def _copied(rev: str, path: str, out: Path) -> bool:
    return copy_of(rev, path, out) or (has_remote() and _by_dvc(rev, path, out))


def _by_dvc(rev: str, path: str, out: Path) -> bool:
    # In this process: a `dvc get` for each file of sixty experiments would take minutes.
    from dvc.api import DVCFileSystem
    from dvc.exceptions import DvcException
    from dvc_data.index import DataIndexDirError

    try:
        DVCFileSystem(".", rev=rev).get(path, str(out), recursive=True)
    except (DvcException, DataIndexDirError, OSError):
        return False
    return out.exists()
