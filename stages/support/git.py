"""Runs Git commands."""

import subprocess
from pathlib import Path

from dicap.errors import DataError


def git(*arguments: str, folder: Path | None = None) -> str:
    """The output of `git ARGUMENTS` in a folder. Raises DataError with Git's own reason if it fails."""
    try:
        done = subprocess.run(
            ["git", "-c", "log.showSignature=false", *arguments],  # else signatures may be in the output
            capture_output=True, check=False, cwd=folder,
        )  # fmt: skip
    except FileNotFoundError:
        raise DataError("git: not found; install it") from None
    if done.returncode:
        reason = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"])[0]
        raise DataError(f"git {arguments[0]}: {reason.removeprefix('fatal: ')}")
    return done.stdout.decode("utf-8", "replace")
