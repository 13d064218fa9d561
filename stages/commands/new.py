"""`dicap-stage new`: a project of one's own, outside the repository of this program."""

import shutil
import subprocess
import sys
from pathlib import Path

import click

from dicap import __version__
from dicap.errors import DataError, first_line
from stages.support.terminal import finish
from stages.sweeps.revisions import git

# The pipeline and the settings have other names in the template: DVC would run any dvc.yaml that it finds in the repository.
FILES = {
    "pipeline.yaml": "dvc.yaml",
    "settings.yaml": "params.yaml",
    "gitignore": ".gitignore",
    "README.md": "README.md",
    "experiments/main.yaml": "experiments/main.yaml",
    "experiments/photographs.yaml": "experiments/photographs.yaml",
}


@click.command("new")
@click.argument("project", type=click.Path(path_type=Path))
@click.option("--from", "source", type=click.Path(path_type=Path), help="Photographs and labels, as `init-data` takes them.")
@click.pass_context
def command(context: click.Context, project: Path, source: Path | None) -> None:
    """Make PROJECT: a folder with the pipeline and its settings, under Git and DVC.

    Everything that runs in the repository of this program runs there too, with the installed program in place of its source.
    """
    if project.exists() and (not project.is_dir() or any(project.iterdir())):
        raise DataError(f"{project}: exists and is not empty; name another folder")
    made = not project.exists()
    try:
        _fill(project)
        if source is not None:
            from stages.commands.init_data import command as init_data

            context.invoke(init_data, folder=source, params=project / "params.yaml")
        committed = _commit(project)
    except BaseException:
        shutil.rmtree(project, ignore_errors=True)
        if not made:
            project.mkdir()
        raise
    if not committed:
        click.echo(f"Git knows no author, so nothing is committed; a sweep needs it: git -C {project} commit", err=True)
    if source is None:
        finish("new", {"project": str(project)}, [f"cd {project}", "dicap-stage init-data FOLDER", "dvc repro"])


def _fill(project: Path) -> None:
    """Write the files of a project and make it a repository of Git and DVC."""
    from dicap.settings.resolve import TEMPLATE

    for name, target in FILES.items():
        (project / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(TEMPLATE / name, project / target)
    (project / "requirements.txt").write_text(f"dicap=={__version__}\n", encoding="utf-8")
    git("init", "--quiet", folder=project)
    done = subprocess.run([sys.executable, "-m", "dvc", "init", "--quiet"], cwd=project, capture_output=True, text=True)
    if done.returncode:
        raise DataError(f"dvc init: {first_line(done.stderr)}")
    shutil.copyfile(TEMPLATE / "dvc_config", project / ".dvc" / "config")


def _commit(project: Path) -> bool:
    """Commit what the project has; whether Git knows an author to do it."""
    git("add", "--all", folder=project)
    done = subprocess.run(["git", "commit", "--quiet", "--message", "A project of dicap"], cwd=project, capture_output=True)
    return done.returncode == 0
