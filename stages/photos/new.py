"""`dicap-stage new`: make a project outside the repository of this program."""

import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import click

from dicap import __version__
from dicap.errors import DataError, first_line
from stages.commands.check import REQUIREMENTS
from stages.support.git import git
from stages.support.terminal import finish

# Settings and pipeline have other names in the template, since DVC would run any dvc.yaml that it finds in the repository.
FILES = {
    "settings.yaml": "params.yaml",
    "gitignore": ".gitignore",
    "gitattributes": ".gitattributes",
    "README.md": "README.md",
    "raw.md": "data/raw/README.md",
    "none": "data/none",
    "labels.md": "labels/README.md",
    "experiments/main.yaml": "experiments/main.yaml",
    "experiments/photographs.yaml": "experiments/photographs.yaml",
}

AUTHOR = ("-c", "user.name=dicap", "-c", "user.email=dicap@localhost")  # of the first commit if Git has no user name


@click.command("new", context_settings={"ignore_unknown_options": True})
@click.argument("project", type=click.Path(path_type=Path))
@click.option("--from", "source", type=click.Path(path_type=Path), help="Photographs and labels, as `init-data` takes them.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(context: click.Context, project: Path, source: Path | None, options: tuple[str, ...]) -> None:
    """Make PROJECT: a folder with the pipeline and its settings, under Git and DVC.

    Every command of this program's repository works there too, with the installed program in place of its source. With --from,
    `init-data` sets PROJECT up for these photographs; OPTIONS are its options.
    """
    if options and source is None:
        raise click.UsageError(f"{options[0]}: what `init-data` takes needs --from FOLDER")
    if project.exists() and (not project.is_dir() or any(project.iterdir())):
        raise DataError(f"{project}: exists and is not empty; name another folder")
    _refuse_place(project, source)
    topmost = next((path for path in [*reversed(project.parents), project] if not path.exists()), None)  # removed on failure
    try:
        _fill(project)
        if source is not None:
            from dicap.photos.readers.question import Question
            from stages.photos.init_data import command as init_data

            words = [str(source), *options, "--params", str(project / "params.yaml")]
            try:
                with init_data.make_context("init-data", words, parent=context) as own:
                    init_data.invoke(own)
            except Question as question:
                question.args = (question.proposing(shlex.join(["new", str(project), "--from", str(source)])),)
                raise
        _commit(project)
    except BaseException:
        for path in [topmost] if topmost else list(project.iterdir()):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.exists():
                path.unlink()
        raise
    if source is None:
        place = f"cd {shlex.quote(str(project))}"
        finish("new", {"project": str(project)}, [place, "dicap-stage init-data FOLDER", "dvc repro"])


def _fill(project: Path) -> None:
    """Write the files of a project and make it a repository of Git and DVC.

    The stages of its pipeline depend on the version of the installed program instead of its code.
    """
    from ruamel.yaml import YAML

    from dicap.provenance import PACKAGES
    from dicap.settings.resolve import TEMPLATE

    try:
        project.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{project}: {error.strerror}; name another folder") from None
    for name, target in FILES.items():
        (project / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(TEMPLATE / name, project / target)
    shutil.copytree(TEMPLATE / "configs", project / "configs")
    yaml = YAML()
    yaml.width = 4096
    pipeline = yaml.load((TEMPLATE / "pipeline.yaml").read_text(encoding="utf-8"))
    for stage in pipeline["stages"].values():
        stage["deps"] = [dep for dep in stage["deps"] if not dep.startswith(PACKAGES)] + [str(REQUIREMENTS)]
    with (project / "dvc.yaml").open("w", encoding="utf-8") as file:
        yaml.dump(pipeline, file)
    (project / REQUIREMENTS).write_text(f"dicap=={__version__}\n", encoding="utf-8")
    git("init", "--quiet", folder=project)
    done = subprocess.run([sys.executable, "-m", "dvc", "init", "--quiet"], cwd=project, capture_output=True, text=True)
    if done.returncode:
        raise DataError(f"dvc init: {first_line(done.stderr)}")
    shutil.copyfile(TEMPLATE / "dvc_config", project / ".dvc" / "config")


def _refuse_place(project: Path, source: Path | None) -> None:
    """Raise DataError for a place in another Git repository or among the photographs, where DVC could not work."""
    place = project.absolute()
    above = next(folder for folder in place.parents if folder.is_dir())
    if source is not None and source.is_dir() and source.resolve() in (place.resolve(), *place.resolve().parents):
        raise DataError(f"{project}: lies in {source}, whose photographs would hold the results; make it beside that folder")
    try:
        top = git("rev-parse", "--show-toplevel", folder=above).strip()
    except DataError:  # in no repository
        return
    raise DataError(f"{project}: lies in the Git repository {top}, and a project needs its own repository; make it elsewhere")


def _commit(project: Path) -> None:
    """Commit all files of the project: an experiment starts from a commit."""
    author = AUTHOR
    with suppress(DataError):  # Git has no user name
        git("var", "GIT_COMMITTER_IDENT", folder=project)
        author = ()
    git("add", "--all", folder=project)
    git(*author, "commit", "--quiet", "--message", "A project of dicap", folder=project)
