"""A project folder on the tiny set, and the commands typed in it."""

import io
import shutil
from contextlib import chdir, redirect_stderr
from pathlib import Path

import tiny
from click.testing import CliRunner
from ruamel.yaml import YAML

OUT = {"convert": "data", "pseudo-label": "artifacts/pseudo_label"}


class Project:
    """A folder with params.yaml and configs, and the commands typed in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def made(cls, folder: Path, changes: dict | None = None):
        """One in which nothing has run."""
        shutil.copytree(tiny.ROOT / "configs", folder / "configs")
        shutil.copy(tiny.ROOT / "params.yaml", folder)
        project = cls(folder)
        if changes:
            project.set(changes)
        return project

    def copy(self, folder: Path) -> "Project":
        """The same at another place."""
        return Project(Path(shutil.copytree(self.folder, folder)))

    def set(self, changes):
        """Change dotted keys of params.yaml."""
        path = self.folder / "params.yaml"
        values = YAML(typ="safe", pure=True).load(path.read_text())
        with open(path, "w") as handle:
            YAML().dump(tiny.nested(values, changes), handle)

    def run(self, *arguments):
        """(exit code, stdout, stderr) of `dicap-stage ...`."""
        from stages.cli import main

        bars = io.StringIO()
        with chdir(self.folder), redirect_stderr(bars):  # progress bars are written beside click
            result = CliRunner().invoke(main, [str(argument) for argument in arguments], env={"DVC_ROOT": None})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr

    def done(self, *arguments):
        """Standard output of a command that must succeed."""
        code, out, errors = self.run(*arguments)
        assert code == 0, errors
        return out

    def refused(self, *arguments):
        """(exit code, the one line) of a command that must fail as for a user's mistake."""
        code, _, errors = self.run(*arguments)
        lines = [line for line in errors.splitlines() if line.startswith("Error: ")]
        assert code in (1, 2) and len(lines) == 1, (code, errors)
        assert "Traceback" not in errors
        return code, lines[0]

    def out(self, stage: str) -> dict[str, bytes]:
        """What a stage published, times left out."""
        content = tiny.content(self.folder / OUT.get(stage, f"artifacts/{stage}"))
        return {name: data for name, data in content.items() if not name.startswith(".")}

    def forget(self, stage: str) -> None:
        """As DVC does before it runs a stage: remove what it published."""
        shutil.rmtree(self.folder / OUT.get(stage, f"artifacts/{stage}"), ignore_errors=True)
