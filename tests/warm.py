"""Processes that have the libraries loaded already, which takes longer than the work of a stage in a test.

    python tests/warm.py NUMBER    a server on this open socket: loads them once, forks for each who asks, until its stdin ends

It loads nothing of this project: a process runs the code that its own path finds, in its own folder, environment and files.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from pathlib import Path
from typing import NoReturn

LIBRARIES = (
    *("torch", "timm", "pandas", "pyarrow.parquet", "scipy.optimize", "pydantic", "ruamel.yaml"),
    *("dvc.cli.parser", "dvc.commands.repro", "dvc.repo.experiments.executor.local", "dvc.repo.reproduce", "dvc.stage.cache"),
    *("matplotlib.backends.backend_svg", "jinja2"),
)
STAGE = "import sys\nfrom stages.cli import main\nsys.exit(main())\n"
DVC = "import sys\nfrom dvc.cli import main\nsys.exit(main(sys.argv[1:]))\n"
PYTHON = """import os, runpy, sys
del sys.argv[0]
if sys.argv[0] == "-c":
    exec(sys.argv.pop(1), {"__name__": "__main__"})
elif sys.argv[0] == "-m":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
PROGRAMS = {"dicap-stage": STAGE, "dvc": DVC, "python": PYTHON}  # the names in tests/bin
PLACE = "WARM_SOCKET"  # the environment's name for the server's socket


def ask(place: str, script: str, words: list[str], folder: Path, environment: dict[str, str], files: list[int]):
    """Let a process run a script with sys.argv = `words` and these files as stdin, stdout, stderr: (connection, process id).

    When it ends, its exit code comes by the connection (`answer`); when the connection is closed before, it is killed.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(place)
    text = json.dumps({"script": script, "words": words, "folder": str(folder), "environment": environment})
    socket.send_fds(connection, [f"{len(text):8d}".encode()], files)
    connection.sendall(text.encode())  # ASCII
    return connection, answer(connection)


def answer(connection: socket.socket) -> int:
    """The next number of the server."""
    return struct.unpack("i", connection.recv(4, socket.MSG_WAITALL))[0]


def command() -> NoReturn:
    """The program of this name with this process's words, folder, environment and files; ends as it ends."""
    connection, process = ask(
        os.environ[PLACE], PROGRAMS[Path(sys.argv[0]).name], sys.argv, Path.cwd(), dict(os.environ), [0, 1, 2]
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(process, number))
    code = answer(connection)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    sys.exit(code)


def serve(listener: socket.socket) -> str:
    """Serve until stdin ends, which ends the process; returns the script in each process that is to run one."""
    (wake, waking), running = socket.socketpair(), {}
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    waking.setblocking(False)
    signal.set_wakeup_fd(waking.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while sys.stdin not in (ready := select.select([listener, sys.stdin, wake, *running.values()], [], [])[0]):
        if wake in ready:
            wake.recv(64)
        for process, connection in list(running.items()):
            if connection in ready:  # nothing is sent: whoever asked is gone
                os.kill(process, signal.SIGKILL)
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                with contextlib.suppress(BrokenPipeError):
                    connection.sendall(struct.pack("i", os.waitstatus_to_exitcode(status)))
                running.pop(process).close()
        if listener in ready:
            connection, _ = listener.accept()
            length, files, *_ = socket.recv_fds(connection, 8, 3)
            asked = json.loads(connection.recv(int(length), socket.MSG_WAITALL))
            process = os.fork()
            if not process:
                return _become(asked, files)
            connection.sendall(struct.pack("i", process))
            for file in files:
                os.close(file)
            running[process] = connection
    sys.exit()


def _become(asked: dict, files: list[int]) -> str:
    """Take on what was asked for, and return its script."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = asked["words"]
    if PLACE in os.environ:  # what it starts has them too
        sys.executable = str(Path(__file__).parent / "bin" / "python")
        os.environ.pop("DICAP_STARTED_BY", None)  # whom it would watch is the parent of the one that asked
    sys.path[0:1] = os.environ["PYTHONPATH"].split(os.pathsep)  # in place of this file's folder
    os.execv = _again
    return asked["script"]


def _again(program: str, words: list[str]) -> NoReturn:
    """`python -m stages.cli WORDS` in place of this process, with the environment as it is now, the libraries kept."""
    assert (program, *words[:3]) == (sys.executable, sys.executable, "-m", "stages.cli")
    for name in [name for name in sys.modules if name.split(".")[0] in ("stages", "dicap")]:
        del sys.modules[name]
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.argv = ["dicap-stage", *words[3:]]
    exec(STAGE, {"__name__": "__main__"})
    raise AssertionError


if __name__ == "__main__":
    script, code = serve(socket.socket(fileno=int(sys.argv[1]))), 0
    try:
        exec(script, {"__name__": "__main__"})
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Python's own end would take the libraries apart: half a second
