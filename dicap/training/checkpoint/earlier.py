"""The states that earlier runs of a stage left: why one of them cannot go on, and when one is of no more use."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dicap.files.artifacts import replacing
from dicap.settings import flatten
from dicap.training.checkpoint.state import RunState, free_lock

IDENTITY = "depends_on.json"  # beside the state: all that its fingerprint stands for
KEPT_DAYS = 30  # an interrupted experiment may go on for so long
_NAMED = 3  # changes that a line names


def begin(state: RunState, identity: dict[str, Any]) -> list[str]:
    """Note beside the state what it depends on; a line where the stage starts over although an earlier run was interrupted.

    Args:
        identity: {settings, code, inputs}, each by name.
    """
    with replacing(state.folder / IDENTITY) as temporary:
        temporary.write_text(json.dumps(identity, sort_keys=True), encoding="utf-8")
    if state.saved:
        return []
    found = [(folder, before) for folder, before in _others(state) if before and any(folder.glob("*.pt")) and _is_free(folder)]
    if not found:
        return []
    # Of several the one that has most in common with this run, the latest first.
    _, before = min(found, key=lambda other: (len(_changes(other[1], identity)), -_touched(other[0])))
    return [f"{state.stage}: starts over; since a run of it was interrupted, {' and '.join(_changes(before, identity))}"]


def clean(state: RunState, identity: dict[str, Any]) -> None:
    """Remove what no experiment goes on with, after the stage was finished.

    That is a state that differs from it in its code alone, and one that nobody has touched for KEPT_DAYS. What has other
    settings or inputs belongs to another experiment, of a sweep for example, and what is running is locked.
    """
    for folder, before in _others(state):
        superseded = before is not None and all(before.get(part) == identity[part] for part in ("settings", "inputs"))
        if superseded or _touched(folder) < time.time() - KEPT_DAYS * 86400:
            with free_lock(folder) as free:
                if free:
                    shutil.rmtree(folder, ignore_errors=True)


def _others(state: RunState) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """Other state folders of the same stage, and what they depend on where that was noted."""
    for folder in sorted(state.folder.parent.glob(f"{state.stage}-*")):
        if folder != state.folder:
            try:
                before = json.loads((folder / IDENTITY).read_text(encoding="utf-8"))
            except (OSError, ValueError):
                before = None
            yield folder, before if isinstance(before, dict) else None


def _is_free(folder: Path) -> bool:
    with free_lock(folder) as free:
        return free


def _touched(folder: Path) -> float:
    """Time of the latest change, in seconds since 1970; now where the folder has just been removed."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.glob("*.pt")))
    except OSError:
        return time.time()


def _changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs, in words: one for each of settings, code and inputs that changed."""
    words = []
    for part in ("settings", "code", "inputs"):
        old, new = dict(flatten(before.get(part, {}))), dict(flatten(now[part]))
        names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
        if part == "settings":
            named = [f"{name} from {old.get(name)} to {new.get(name)}" for name in names[:_NAMED]]
        else:
            named = names[:_NAMED]
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            words.append(f"{part} changed ({', '.join(named)}{more})")
    return words
