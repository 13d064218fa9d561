"""`dicap-stage`: the commands. A command's module is imported only when it runs, so that --help is fast."""

import atexit
import errno
import gc
import importlib
import os
import sys
from pathlib import Path

import click

from dicap import __version__
from dicap.errors import DataError, SettingsError, Stopped, out_of_memory
from stages.support.parent import STARTED_BY, end_with_parent

if sys.platform == "win32":
    sys.exit("dicap runs on Linux and macOS; on Windows install it in WSL (https://learn.microsoft.com/windows/wsl)")

EXIT_CODES = {SettingsError: 2, DataError: 1, Stopped: 75}
DISK_TROUBLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG, errno.ENAMETOOLONG}

PIPELINE = {
    "check": "Check the settings.",
    "convert": "Index the raw data set and cache its images as one array.",
    "features": "Compute the features of a frozen backbone, once.",
    "split": "Draw D_sup, D_est and D_u.",
    "warmup": "Train on the labelled images to initialise the model.",
    "pseudo-label": "Write the pseudo-labels of the first main epoch, for inspection.",
    "train": "Main stage: Algorithm 1 of the paper.",
    "finetune": "Train the head alone on D_est.",
    "evaluate": "Score the test images: mAP, AP per class, interval.",
    "report": "Draw all results on one self-contained page.",
}
USE = {
    "new": "Make a project of your own: a folder with the pipeline in it.",
    "init-data": "Examine a folder of your own images, and write its settings.",
    "predict": "Predict images: probability, decision, chance to be right.",
    "count": "Count the photographs that show each class, with intervals.",
    "suggest": "Choose the unlabelled images to label next.",
    "review": "Find labels that are probably wrong.",
    "import-labels": "Add new labels to your own data set.",
    "export": "Write a model as ONNX.",
}
TOOLS = {
    "run": "Run the whole pipeline in this folder, without DVC.",
    "config": "Print the settings in force and the origin of each value.",
    "reference": "Print the reference of settings and commands.",
    "histogram": "Draw the histogram of a Parquet artifact.",
    "doctor": "Check a converted data set.",
    "sweep": "Run a grid of experiments, here or on a cluster.",
    "figures": "Draw the paper's figures from finished runs.",
    "table": "Compare finished runs with the published tables.",
}


# Folders of the commands of layers above the core; all other commands are in stages/commands/.
LAYERS = {"photos": tuple(USE), "lab": ("sweep", "figures", "table")}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports their modules on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the help."""
        return [*PIPELINE, *USE, *TOOLS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        layer = next((layer for layer, names in LAYERS.items() if cmd_name in names), "commands")
        module = f"stages.{layer}.{cmd_name.replace('-', '_')}"
        try:
            return importlib.import_module(module).command
        except ModuleNotFoundError as error:
            if layer == "commands" or error.name is None or not module.startswith(error.name):
                raise
            raise SettingsError(f"{cmd_name}: needs stages.{layer}, which is not part of this installation") from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands. (Click's own listing would import all of them for their first lines.)"""
        for title, group in (("Pipeline, in this order", PIPELINE), ("Your own data", USE), ("Tools", TOOLS)):
            with formatter.section(title):
                formatter.write_dl([*group.items()])

    def invoke(self, ctx: click.Context):
        """Run a command. Users' errors become lines with exit codes, never tracebacks."""
        _run_own_program()
        if STARTED_BY in os.environ:  # another command of this program started this process
            end_with_parent()
        # OpenMP reads this when torch is loaded, OpenBLAS when numpy is loaded. By default waiting threads spin: if another
        # process uses the same cores, a training step then took 2.5 s instead of 0.16 s, a solved head 13 s instead of 11.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "16")  # 2^16 cycles instead of 2^28
        # Imports create a million permanent objects. With Python's defaults the garbage collector takes a tenth of a stage's
        # start, and again as much at exit, when it is useless.
        gc.set_threshold(10_000, 50)
        atexit.register(gc.freeze)
        try:
            return super().invoke(ctx)
        except tuple(EXIT_CODES) as error:
            code, message = next(code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), str(error)
        except OSError as error:
            if error.errno not in DISK_TROUBLE:
                raise
            path = error.filename2 or error.filename or "the disk"
            remedy = "shorten it" if error.errno == errno.ENAMETOOLONG else "make room or choose another disk, and run again"
            code, message = 1, f"{path}: {error.strerror}; {remedy}"
        except Exception as error:
            if (reason := out_of_memory(error)) is None:
                raise
            code, message = 1, f"{reason}; lower train.batch_size, or --workers; docs/costs.md has more"
        for line in message.splitlines():
            click.echo(f"{'Stopped' if code == EXIT_CODES[Stopped] else 'Error'}: {line}", err=True)
        ctx.exit(code)


def _run_own_program() -> None:
    """Under DVC, continue with the experiment's own copy of the program.

    A queued or temporary experiment runs in its own folder, and its results are recorded with that folder's code. The installed
    program belongs to the workspace, where the code may have changed since.
    """
    project_cli, path = Path("stages/cli.py"), os.environ.get("PYTHONPATH", "")
    if "DVC_STAGE" not in os.environ or not project_cli.is_file():
        return
    if not project_cli.samefile(__file__) and path.split(os.pathsep)[0] != os.getcwd():
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.getcwd(), path)))
        os.execv(sys.executable, [sys.executable, "-m", "stages.cli", *sys.argv[1:]])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__)
@click.option("--quiet", "-q", is_flag=True, help="Say nothing but errors; no progress bars.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of text, for scripts.")
@click.pass_context
def main(ctx: click.Context, quiet: bool, as_json: bool) -> None:
    """Semi-supervised multi-label learning: DiCaP and the methods it is compared with."""
    ctx.obj = {"quiet": quiet, "json": as_json}
    if quiet and "DICAP_QUIET" not in os.environ:
        os.environ["DICAP_QUIET"] = "1"  # read by the progress bars, in worker processes too
        ctx.call_on_close(lambda: os.environ.pop("DICAP_QUIET", None))


if __name__ == "__main__":
    sys.exit(main())
