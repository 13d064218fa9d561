"""Resume: a state folder of our own, named by a fingerprint, locked, with two checked generations.

It lies under `$DVC_ROOT/.dicap/state/`, so it survives DVC's cleaning of outputs, kills, and temporary or queued
experiments; a changed setting, input or line of code has another fingerprint and can never pick up old epochs.
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

SCHEMA = 5  # of the saved state; part of the fingerprint, so another version starts afresh
DIGEST = 32  # bytes of the checksum of what follows it, at the head of a generation
DONE = "done"  # a file beside products that another run waits for
STALE_DAYS = 30  # an interrupted experiment may go on for so long


def fingerprint(identity: dict[str, Any]) -> str:
    """16 hex digits that stand for all that a stage's result depends on: settings, code, inputs."""
    return hashlib.sha256(json.dumps([SCHEMA, identity], sort_keys=True).encode()).hexdigest()[:16]


def remove_stale(states: Path) -> None:
    """Remove the state folders that no run holds and that were not touched for STALE_DAYS."""
    for folder in states.iterdir():
        with suppress(OSError):
            touched = max(path.stat().st_mtime for path in (folder, *folder.glob("*.pt")))
            if touched < time.time() - STALE_DAYS * 86400:
                with locked(folder / "lock") as free:
                    if free:
                        shutil.rmtree(folder, ignore_errors=True)


class RunState:
    """A stage's state folder, held by one process at a time.

    Used as a context manager: entering waits for the lock, leaving frees it. `finish` removes the folder, unless another run
    waits for the same result.

    Attributes:
        products: finished artifacts that wait for the stage's end.
        cost: what they cost, apart from them: times differ from run to run where results do not.
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
                    self._log([f"{self.stage}: process {lock.read_text().strip()} does the same; waiting for its result"])
                    self._held.enter_context(locked(lock, wait=True))
                break
            except FileNotFoundError:
                pass  # the run that held it has ended and removed the folder
            except OSError as error:
                raise DataError(
                    f"{self.folder}: cannot be made ({error.strerror}); the state of a run is kept there, so make it writable"
                ) from None
        lock.write_text(str(os.getpid()))
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def save(self, payload: dict[str, Any]) -> None:
        """Write a generation; the one before stays until the next is whole."""
        current = self.folder / "state.pt"
        content = io.BytesIO()  # torch's writer would turn what goes wrong with a file into an error of another kind
        torch.save({"schema": SCHEMA} | payload, content)
        try:
            with replacing(current) as temporary:
                with temporary.open("wb") as handle:
                    handle.writelines([hashlib.sha256(content.getbuffer()).digest(), content.getbuffer()])
                if current.exists():
                    os.replace(current, self.folder / "previous.pt")
        except OSError as error:
            raise DataError(
                f"{self.folder}: cannot save the state ({error.strerror}); the one before is intact; "
                "free some space and run again"
            ) from None

    def load(self) -> tuple[dict[str, Any] | None, list[str]]:
        """The newest generation that is whole, or None; and a line for every damaged one that was passed over."""
        warnings = []
        current, previous = self.folder / "state.pt", self.folder / "previous.pt"
        for path in (current, previous):
            if not path.exists():
                continue
            payload = _read(path)
            if payload is not None:
                return payload, warnings
            path.unlink()  # or the next save would keep it as its generation before
            rest = "from the generation before it" if path == current and previous.exists() else "from the start"
            warnings.append(f"{path}: damaged or of another version, passed over; continuing {rest}")
        return None, warnings

    def is_done(self) -> bool:
        """Whether the run that this one waited for has left its products. Products without a waiting run are removed."""
        done, waited = self.folder / DONE, self._waiting.exists()
        self._waiting.unlink(missing_ok=True)
        if done.exists() and not waited:
            shutil.rmtree(self.products, ignore_errors=True)
            done.unlink()
        return done.exists()

    def finish(self) -> None:
        """Remove the folder, after the products were published, and those that are stale."""
        if any(self.folder.glob("waiting-*")):
            for path in self.folder.glob("*.pt"):
                path.unlink()
            (self.folder / DONE).touch()
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
        remove_stale(self.folder.parent)


def _read(path: Path) -> dict[str, Any] | None:
    """The content of a generation, or None if it is not whole or not of this version."""
    with open(path, "rb") as handle:
        digest = handle.read(DIGEST)
        if hashlib.file_digest(handle, "sha256").digest() != digest:
            return None
        handle.seek(DIGEST)
        try:
            payload = torch.load(handle, map_location="cpu", weights_only=True)
        except Exception:  # torch's reader raises whatever the bytes lead it to
            return None
    return payload if isinstance(payload, dict) and payload.get("schema") == SCHEMA else None


class StopSignal:
    """Turns SIGINT and SIGTERM into a flag that the step loop reads; used as a context manager."""

    def __init__(self) -> None:
        self.received: int | None = None

    def __enter__(self) -> "StopSignal":
        self._before = {number: signal.signal(number, self._receive) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self.received is not None:  # a second signal means now
            raise KeyboardInterrupt
        self.received = number

    def __bool__(self) -> bool:
        return self.received is not None
