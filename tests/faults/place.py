"""A project folder to which faults are done: the commands in this process or in one of their own."""

import io
import os
import shutil
import time
from contextlib import chdir, redirect_stderr
from pathlib import Path

import tiny
from click.testing import CliRunner
from ruamel.yaml import YAML

LONG = os.environ.get("FAULTS") == "long"
OUT = {"convert": "data", "pseudo-label": "artifacts/pseudo_label"}


class Place:
    """params.yaml, configs, and what the stages make of them."""

    def __init__(self, folder: Path, changes=None) -> None:
        self.folder = folder
        if changes is not None:
            shutil.copytree(tiny.ROOT / "configs", folder / "configs")
            values = YAML(typ="safe", pure=True).load((tiny.ROOT / "params.yaml").read_text())
            with open(folder / "params.yaml", "w") as handle:
                YAML().dump(tiny.nested(values, changes), handle)

    def copy(self, folder: Path) -> "Place":
        shutil.copytree(self.folder, folder)
        return Place(folder)

    def run(self, *arguments: str) -> tuple[int, str]:
        """(exit code, stderr) of a command in this process."""
        from stages.cli import main

        bars = io.StringIO()
        with chdir(self.folder), redirect_stderr(bars):
            result = CliRunner().invoke(main, list(arguments), env={"DVC_ROOT": None})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stderr

    def done(self, *arguments: str) -> str:
        """stderr of a command that must succeed."""
        code, errors = self.run(*arguments)
        assert code == 0, errors
        return errors

    def refused(self, *arguments: str, code: int = 1) -> str:
        """The lines of a command that must fail as for a user's mistake."""
        found, errors = self.run(*arguments)
        lines = [line.split("Error: ", 1)[1] for line in errors.splitlines() if "Error: " in line]
        assert found == code and lines, (found, errors)
        return "\n".join(lines)

    def start(self, stage: str) -> tiny.Child:
        """The command in a process of its own, from the moment at which it holds its lock or writes its array."""
        begin, before = time.time(), self._owners(stage)
        process = tiny.stage(self.folder, stage)
        while not self._begun(stage, begin, before) and process.poll() is None:
            time.sleep(0.01)
        return process

    def _begun(self, stage: str, begin: float, before: set[str]) -> bool:
        if stage == "convert":
            arrays = self.folder.glob("data/.*.tmp/images.npy")
            return any(array.stat().st_mtime >= begin for array in arrays if array.exists())
        return not self._owners(stage) <= before

    def _owners(self, stage: str) -> set[str]:
        """The processes that hold a state of the stage, or held it last."""
        return {lock.read_text() for lock in self.folder.glob(f".dicap/state/{stage}-*/lock")} - {""}

    def out(self, stage: str) -> dict[str, bytes]:
        """What the stage published, times left out."""
        content = tiny.content(self.folder / OUT.get(stage, f"artifacts/{stage}"))
        return {name: data for name, data in content.items() if not name.startswith(".")}

    def forget(self, stage: str) -> None:
        """As DVC does before it runs a stage: remove what it published."""
        shutil.rmtree(self.folder / OUT.get(stage, f"artifacts/{stage}"), ignore_errors=True)
