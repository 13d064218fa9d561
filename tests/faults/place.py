"""A project folder to which faults are done: the commands in this process or in one of their own."""

import shutil
import time
from contextlib import chdir
from pathlib import Path

import tiny
from project import Project

OUT = {"convert": "data", "pseudo-label": "artifacts/pseudo_label"}


class Place(Project):
    """One that need not be the folder one works in."""

    def copy(self, folder: Path) -> "Place":
        shutil.copytree(self.folder, folder)
        return Place(folder)

    def run(self, *arguments: object) -> tuple[int, str, str]:
        """(exit code, stdout, stderr) of a command in this process."""
        with chdir(self.folder):
            return super().run(*arguments)

    def done(self, *arguments: object) -> str:
        """stderr of a command that must succeed."""
        code, _, errors = self.run(*arguments)
        assert code == 0, errors
        return errors

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
