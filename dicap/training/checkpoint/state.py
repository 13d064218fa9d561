"""Checkpoints of a stage: a locked state folder, named by a fingerprint, with the last two checkpoints and their checksums.

The folder is under `$DVC_ROOT/.dicap/state/`, so it survives kills, temporary and queued experiments, and DVC, which removes a
stage's outputs. A changed setting, input or line of code changes the fingerprint, so old epochs are never resumed under it.
"""

import hashlib
import io
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from dicap.errors import DataError
from dicap.files.atomic import replacing
from dicap.files.locks import locked

SCHEMA = 5  # of the checkpoint format; part of the fingerprint, so another version starts from the beginning
DIGEST = 32  # bytes of the checksum at the head of a checkpoint file
DONE = "done"  # a file that marks products for another run that waits for them
STALE_DAYS = 30  # an interrupted experiment can be resumed for this long


def fingerprint(identity: dict[str, Any]) -> str:
    """A hash (16 hex digits) of everything that a stage's result depends on: settings, code, inputs."""
    return hashlib.sha256(json.dumps([SCHEMA, identity], sort_keys=True).encode()).hexdigest()[:16]


def remove_stale(states: Path) -> None:
    """Remove state folders that no run holds and that have not changed for STALE_DAYS."""
    for folder in states.iterdir():
        with suppress(OSError):
            touched = max(path.stat().st_mtime for path in (folder, *folder.glob("*.pt")))
            if touched < time.time() - STALE_DAYS * 86400:
                with locked(folder / "lock") as free:
                    if free:
                        shutil.rmtree(folder, ignore_errors=True)


class RunState:
    """A stage's state folder, held by one process at a time.

    A context manager: entering waits for the lock, leaving releases it. `finish` removes the folder, unless another run waits
    for the same result.

    Attributes:
        products: folder of the finished artifacts until the stage publishes them.
        cost: file of times and memory. It is not a product, because it differs between runs with equal results.
    """

    def __init__(self, root: Path, stage: str, identity: str, log: Callable[[list[str]], object] = lambda lines: None) -> None:
        self.folder = root / ".dicap" / "state" / f"{stage}-{identity}"
        self.products, self.cost = self.folder / "products", self.folder / "cost.csv"
        self.stage, self._held, self._log = stage, ExitStack(), log
        self._waiting = self.folder / f"waiting-{os.getpid()}"

    def __enter__(self) -> "RunState":
        lock = self.folder / "lock"
        while True:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                if not self._held.enter_context(locked(lock)):
                    self._waiting.touch()
                    self._log([f"{self.stage}: process {lock.read_text().strip()} runs the same stage; waiting for its result"])
                    self._held.enter_context(locked(lock, wait=True))
                break
            except FileNotFoundError:
                pass  # the run that held the lock has ended and removed the folder
            except OSError as error:
                raise DataError(
                    f"{self.folder}: cannot be created ({error.strerror}); a run keeps its checkpoints there, so make it writable"
                ) from None
        lock.write_text(str(os.getpid()))
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def save(self, payload: dict[str, Any]) -> None:
        """Write a checkpoint. The previous checkpoint stays until the new one is complete."""
        current = self.folder / "state.pt"
        content = io.BytesIO()  # in memory first: torch's writer turns an OSError into another error
        torch.save({"schema": SCHEMA} | payload, content)
        try:
            with replacing(current) as temporary:
                with temporary.open("wb") as handle:
                    handle.writelines([hashlib.sha256(content.getbuffer()).digest(), content.getbuffer()])
                if current.exists():
                    os.replace(current, self.folder / "previous.pt")
        except OSError as error:
            raise DataError(
                f"{self.folder}: cannot save the checkpoint ({error.strerror}); the previous checkpoint is intact; "
                "free some space and run again"
            ) from None

    def load(self) -> tuple[dict[str, Any] | None, list[str]]:
        """The newest undamaged checkpoint, or None; and a line for every damaged checkpoint that was skipped."""
        warnings = []
        current, previous = self.folder / "state.pt", self.folder / "previous.pt"
        for path in (current, previous):
            if not path.exists():
                continue
            payload = _read(path)
            if payload is not None:
                return payload, warnings
            path.unlink()  # or the next save would keep it as the previous checkpoint
            origin = "from the previous checkpoint" if path == current and previous.exists() else "from the start"
            warnings.append(f"{path}: damaged or of another version, skipped; continuing {origin}")
        return None, warnings

    def is_done(self) -> bool:
        """Whether the run that this run waited for has left its products. Products that no run waits for are removed."""
        done, waited = self.folder / DONE, self._waiting.exists()
        self._waiting.unlink(missing_ok=True)
        if done.exists() and not waited:
            shutil.rmtree(self.products, ignore_errors=True)
            done.unlink()
        return done.exists()

    def finish(self) -> None:
        """Remove the folder after its products were published, and remove stale folders of other runs."""
        if any(self.folder.glob("waiting-*")):
            for path in self.folder.glob("*.pt"):
                path.unlink()
            (self.folder / DONE).touch()
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
        remove_stale(self.folder.parent)


def _read(path: Path) -> dict[str, Any] | None:
    """The content of a checkpoint file; None if it is damaged or of another version."""
    with open(path, "rb") as handle:
        digest = handle.read(DIGEST)
        if hashlib.file_digest(handle, "sha256").digest() != digest:
            return None
        handle.seek(DIGEST)
        try:
            payload = torch.load(handle, map_location="cpu", weights_only=True)
        except Exception:  # torch's reader can raise anything on unexpected bytes
            return None
    return payload if isinstance(payload, dict) and payload.get("schema") == SCHEMA else None


class StopSignal:
    """A context manager that turns SIGINT and SIGTERM into a flag, which the step loop reads."""

    def __init__(self) -> None:
        self.received: int | None = None

    def __enter__(self) -> "StopSignal":
        self._before = {number: signal.signal(number, self._receive) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self.received is not None:  # a second signal stops at once
            raise KeyboardInterrupt
        self.received = number

    def __bool__(self) -> bool:
        return self.received is not None
