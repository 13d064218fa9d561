"""Git, as the commands ask it."""

import subprocess
from pathlib import Path

from dicap.errors import DataError


def git(*arguments: str, folder: Path | None = None) -> str:
    """What `git ARGUMENTS` prints in a folder. Raises DataError with Git's own reason where it fails."""
    return run_git([*arguments], folder=folder).decode()


def run_git(arguments: list[str], text: str | None = None, folder: Path | None = None) -> bytes:
    """The bytes that Git prints, given a text on its standard input. Raises DataError with Git's own reason where it fails."""
    content = None if text is None else text.encode()
    try:
        done = subprocess.run(
            ["git", "-c", "log.showSignature=false", *arguments],  # or signatures would stand between the lines
            input=content, capture_output=True, check=False, cwd=folder,
        )  # fmt: skip
    except FileNotFoundError:
        raise DataError("git: not found; install it") from None
    if done.returncode:
        reason = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"])[0]
        raise DataError(f"git {arguments[0]}: {reason.removeprefix('fatal: ')}")
    return done.stdout
