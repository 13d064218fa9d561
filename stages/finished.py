"""The finished experiments and their files, as DVC knows them."""

import functools
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dicap.errors import DataError, SettingsError

METRICS = "artifacts/evaluate/metrics.json"
IDENTITY = ("dataset", "method", "ratio", "seed")
_WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before a question is put again


def finished(params: Path, *, everywhere: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """Every finished experiment, and a sentence about each that had to be left out.

    Args:
        params: the settings file of the project; experiments are resolved over the same configs folder.
        everywhere: those of all commits, not only of the current one.

    An experiment is {name, rev, when, settings (resolved, nested), metrics}. Raises DataError where DVC cannot answer.
    """
    from dicap.settings import read_yaml, resolve_values

    answer = question(
        "exp", "show", "--json", "--hide-queued", "--hide-failed", "--hide-workspace", *(["-A"] if everywhere else [])
    )
    try:
        revisions = json.loads(answer or "[]")
    except json.JSONDecodeError:
        raise DataError("dvc exp show --json: the answer is not JSON; run the command by hand to see why") from None
    found, notes = [], []
    read = functools.cache(read_yaml)
    for name, revision in _revisions(revisions):
        data = revision.get("data") or {}
        values = ((data.get("params") or {}).get(params.name) or {}).get("data")
        metrics = ((data.get("metrics") or {}).get(METRICS) or {}).get("data")
        if not values or not metrics:
            continue  # a commit before the first run, or a run that did not come this far
        try:
            settings = resolve_values(values, params, read=read).settings.model_dump()
        except SettingsError as error:
            notes.append(f"{name}: left out, its settings are no longer valid ({str(error).splitlines()[0]}).")
            continue
        # A commit whose params.yaml was edited without a run shows the scores of the old settings.
        if any(key in metrics and metrics[key] != settings[key] for key in IDENTITY):
            notes.append(f"{name}: left out, its scores belong to other settings than its {params.name}.")
            continue
        rev = data.get("rev") or revision["rev"]
        found.append({"name": name, "rev": rev, "when": data.get("timestamp"), "settings": settings, "metrics": metrics})
    return found, notes


def fetch(rev: str, path: str, folder: Path) -> Path | None:
    """Copy an output of an experiment into `folder`; None if DVC does not have it (any more)."""
    out = folder / rev[:12] / path
    out.parent.mkdir(parents=True, exist_ok=True)
    return out if _copied(rev, path, out) else None


def _copied(rev: str, path: str, out: Path) -> bool:
    # In this process: a `dvc get` for each file of sixty experiments would take minutes.
    from dvc.api import DVCFileSystem
    from dvc.exceptions import DvcException
    from dvc_data.index import DataIndexDirError

    try:
        DVCFileSystem(".", rev=rev).get(path, str(out), recursive=True)
    except (DvcException, DataIndexDirError, OSError):
        return False
    return out.exists()


def _revisions(answer: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, revision) of commits and experiments; those still running are passed over."""
    for commit in answer:
        yield commit.get("name") or str(commit["rev"])[:7], commit
        for experiment in commit.get("experiments") or []:
            if (experiment.get("executor") or {}).get("state") in {"running", "queued", "failed"}:
                continue
            for revision in (experiment.get("revs") or [])[:1]:
                yield experiment.get("name") or str(revision["rev"])[:7], revision


def ask(*arguments: str, waits: Sequence[float] = ()) -> str:
    """What `dvc ARGUMENTS` prints. Raises DataError with DVC's own reason where it fails.

    Args:
        waits: seconds before each further try, where DVC has met what it did not expect; for questions, which change nothing.
            The queue's workers write their files in place, and DVC may find one half written.
    """
    done = subprocess.run([sys.executable, "-m", "dvc", *arguments], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    reason = next((line for line in lines if line.startswith("ERROR")), lines[0] if lines else "no reason given")
    if waits and "unexpected error" in reason:
        time.sleep(waits[0])
        return ask(*arguments, waits=waits[1:])
    raise DataError(f"dvc {arguments[0]} {arguments[1]}: {reason.removeprefix('ERROR: ')}")


def question(*arguments: str) -> str:
    """`ask` what changes nothing, again and again where the queue is just being written."""
    return ask(*arguments, waits=_WAITS)
