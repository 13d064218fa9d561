"""The finished experiments, as Git and DVC's cache know them."""

import hashlib
import json
from typing import Any

from pydantic import ValidationError

from stages.lab.sweeps.revisions import Stage, cached_files, revisions, stages_of, text_of

METRICS = "artifacts/evaluate/details.json"
REPORT, SETTINGS = "artifacts/report", "artifacts/report/settings.json"  # as they were in force
CONVERTED = "data/converted"


def finished(*, everywhere: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """Every finished experiment, and a sentence about each that had to be left out.

    Args:
        everywhere: those of all commits, not only of the current one.

    An experiment is {name, rev, when, settings (nested, as they were in force when it ran), metrics, data (checksum of the
    converted set), inputs (path -> checksum of all that no stage made)}. Raises DataError outside a Git repository.
    """
    from dicap.settings import Settings
    from dicap.settings.methods import METHODS

    found, notes, absent = [], [], 0
    every = revisions(everywhere=everywhere)
    locks = text_of(revision.lock for revision in every)
    for revision in reversed(every):
        lock = locks[revision.lock]
        stages = stages_of(lock)
        if not any(REPORT in stage.outs for stage in stages.values()):
            continue  # before the first run
        if not _of_one_run(stages):  # as after `dvc repro train` under other settings
            notes.append(f"{revision.name}: left out, its scores are of an earlier run than what they are made from.")
            continue
        metrics, written = (_json(lock, path) for path in (METRICS, SETTINGS))
        if metrics is None or written is None:
            absent += 1
            continue
        try:
            settings = Settings.model_validate(written).model_dump()
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            notes.append(f"{revision.name}: left out, its settings are no longer valid ({where}).")
            continue
        if (method := settings["method"]) not in METHODS:
            notes.append(f"{revision.name}: left out, this version has no method {method!r}.")
            continue
        outs = {path: md5 for stage in stages.values() for path, md5 in stage.outs.items()}
        facts = {"name": revision.name, "rev": revision.rev, "when": revision.when, "data": outs.get(CONVERTED, "")}
        inputs = {path: md5 for stage in stages.values() for path, md5 in stage.deps.items() if path not in outs}
        found.append(facts | {"settings": settings, "metrics": metrics, "inputs": inputs})
    if absent:
        notes.append(
            f"left out {absent} run{'s' if absent > 1 else ''} whose results DVC's cache does not hold, or not as written; "
            "`dvc fetch` gets them from a remote."
        )
    return found, notes


def _of_one_run(stages: dict[str, Stage]) -> bool:
    """Whether the report in a dvc.lock, and all that it is made from, were made from what the lock says of it."""
    made = {path: (name, md5) for name, stage in stages.items() for path, md5 in stage.outs.items()}
    waiting, seen = [made[REPORT][0]], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for path, md5 in stages[name].deps.items():
            if path in made:
                maker, written = made[path]
                if written != md5:
                    return False
                waiting.append(maker)
    return True


def _json(lock: str, path: str) -> dict[str, Any] | None:
    """The content of an output; None where this machine's cache does not hold it, or it is damaged."""
    place = cached_files(lock, path).get(".")
    if place is None:
        return None
    data = place.read_bytes()
    return json.loads(data) if hashlib.md5(data).hexdigest() == place.parent.name + place.name else None
