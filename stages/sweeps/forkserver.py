"""A fork server: one process imports the libraries, and forks for each command that needs them.

Stages on features of a frozen backbone take seconds, most of which went into importing torch, timm and pandas in each process
anew (benchmarks/starts.py). A child of the server has the libraries from the start. Of this project it imports what lies in the
folder in which its command is given, as a process of its own would.

    with fork_server(environment) as variables: ...   # commands that have these variables find the server
    run("stages.cli", arguments)                       # in such a command: have a child do it

Python's own fork server (multiprocessing) serves only the process that started it; between a cell and its stages there is DVC.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ADDRESS = "DICAP_FORK_SERVER"
LIBRARIES = (
    *("torch", "torchvision", "timm", "timm.utils.model_ema", "safetensors.torch", "numpy", "pandas", "pyarrow.parquet"),
    *("scipy.optimize", "scipy.special", "threadpoolctl", "pydantic", "ruamel.yaml", "click", "tqdm", "PIL.Image", "jinja2"),
)
_OWN = ("dicap", "stages")
_STARTED, _REFUSED = b"+", b"-"
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Variables that may differ between the server and a command. A library may have read any other when it was loaded.
_FREE = re.compile(r"(DVC|DICAP|GIT)_\w+|PYTHONPATH|PATH|PWD|OLDPWD|SHLVL|_")
_WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}  # as `dicap-stage` sets it before it loads torch
_DEATH_SIGNAL, _NAME = 1, 15  # PR_SET_PDEATHSIG and PR_SET_NAME of prctl.h


@dataclass(frozen=True)
class Request:
    """A command: `python -m module *arguments`, where and with what."""

    module: str
    arguments: list[str]
    folder: str
    environment: dict[str, str]


@contextlib.contextmanager
def fork_server(
    environment: Mapping[str, str], libraries: Sequence[str] = LIBRARIES, place: Path | None = None
) -> Iterator[dict[str, str]]:
    """Variables by which commands find a fork server.

    None where there can be none: not Linux, or too long a path for a socket; and none where there is one already.

    Args:
        environment: that of the server and of the commands.
        libraries: modules to import before the first fork.
        place: an existing folder for the socket that no other user may enter; None: one of its own.
    """
    if sys.platform != "linux" or ADDRESS in environment:
        yield {}
        return
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        address = str((place or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dicap-")))) / "socket")
        try:
            listener.bind(address)
        except OSError:  # longer than the 107 bytes that a socket's path has at most
            yield {}
            return
        listener.listen()
        # A session of its own: Ctrl-C goes to the commands, which pass it on.
        process = subprocess.Popen(
            [sys.executable, "-m", "stages.sweeps.forkserver", str(listener.fileno()), *libraries],
            cwd=Path(__file__).parents[2], env=environment, stdin=subprocess.PIPE, pass_fds=[listener.fileno()],
            start_new_session=True,
        )  # fmt: skip
        listener.close()
        try:
            yield {ADDRESS: address}
        finally:
            process.communicate()  # it ends with its standard input, which also ends when this process is killed


def run(module: str, arguments: list[str]) -> int | None:
    """Have a child of the server do this process's work; its exit code, or None where there is no server that does."""
    if ADDRESS not in os.environ:
        return None
    content = json.dumps(vars(Request(module, arguments, os.getcwd(), dict(os.environ)))).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        given: list[int] = []

        def pass_on(number: int, _: object) -> None:
            given.append(number)
            with contextlib.suppress(OSError):  # the server has ended, and the child with it
                connection.sendall(bytes([number]))

        before, started = {}, False
        with contextlib.suppress(OSError):
            with _held_back():  # the child may begin before the handlers are there
                connection.connect(os.environ[ADDRESS])
                socket.send_fds(connection, [len(content).to_bytes(8, "big")], [0, 1, 2])
                connection.sendall(content)
                before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
            started = connection.recv(1) == _STARTED
        if started:
            with contextlib.suppress(OSError):
                if answer := connection.recv(1):
                    return answer[0]
            return 128 + signal.SIGKILL
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in given:  # they were meant for this process after all
        signal.raise_signal(number)
    return None


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """The signals that are passed on wait until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(listener: socket.socket, environment: Mapping[str, str]) -> tuple[Request, list[int]] | None:
    """Fork for each request.

    Args:
        environment: the variables with which the libraries were loaded.

    Returns:
        In a child, its request and the files that are to be its standard streams; in the server None, once the process that
        started it has ended, and every child with it.
    """
    children: dict[int, socket.socket] = {}
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    woken.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([sys.stdin, listener, woken, *children.values()], [], [])
        if sys.stdin in ready:
            for child in children:
                _end(child)
            return None
        for child, connection in children.items():
            if connection in ready:
                _pass_on(child, connection)
        if woken in ready:
            woken.recv(4096)
            _answer(children)
        if listener in ready:
            connection, _ = listener.accept()
            request, streams = _receive(connection, environment)
            if request is None:
                continue
            child = _fork()
            if child == 0:
                for other in (listener, woken, wake, connection, *children.values()):
                    other.close()
                return request, streams
            with contextlib.suppress(OSError):  # the client was stopped while the libraries were loaded
                connection.sendall(_STARTED)
            children[child] = connection
            for stream in streams:
                os.close(stream)


def _receive(connection: socket.socket, environment: Mapping[str, str]) -> tuple[Request | None, list[int]]:
    """A request and its streams; None where the client has ended, or a process of its own has to serve it."""
    streams: list[int] = []
    try:
        size, streams, _, _ = socket.recv_fds(connection, 8, 3)
        content = b""
        while len(content) < int.from_bytes(size, "big") and (part := connection.recv(65536)):
            content += part
        request = Request(**json.loads(content))
        differ = (_WAITING | request.environment).items() ^ environment.items()
        if all(_FREE.fullmatch(name) for name, _ in differ):
            return request, streams
        connection.sendall(_REFUSED)
    except (OSError, ValueError):
        pass  # the client has ended
    for stream in streams:
        os.close(stream)
    connection.close()
    return None, []


def _fork() -> int:
    """As os.fork, with the child in a group of its own, which ends with the server."""
    server = os.getpid()
    with warnings.catch_warnings():
        # Python 3.12 warns of threads. There are OpenBLAS's at most, and it provides for forks.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(1)
    return child


def _pass_on(child: int, connection: socket.socket) -> None:
    """What a client sends: signals for its child. A client that was killed takes the child with it."""
    try:
        numbers = connection.recv(16)
    except OSError:
        numbers = b""
    if not numbers:
        _end(child)
    for number in numbers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)


def _end(child: int) -> None:
    """Kill a child and what it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def _answer(children: dict[int, socket.socket]) -> None:
    """Tell the clients of children that have ended their exit codes, as a shell would."""
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        with children.pop(child) as connection, contextlib.suppress(OSError):
            connection.sendall(bytes([code if code >= 0 else 128 - code]))


def work(request: Request, streams: list[int], libraries: list[str], added: dict[str, str]) -> NoReturn:
    """Become the process of a request.

    Args:
        libraries: where modules of others lie (sys.path). added: variables that they set when they were loaded.
    """
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment | added)
    os.environ.pop(ADDRESS, None)  # what this process starts is its own
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    for name in [name for name in sys.modules if name.partition(".")[0] in _OWN]:
        del sys.modules[name]
    sys.path[:] = [request.folder, *filter(None, request.environment.get("PYTHONPATH", "").split(os.pathsep)), *libraries]
    importlib.invalidate_caches()
    sys.argv = [request.module, *request.arguments]
    ctypes.CDLL(None).prctl(_NAME, " ".join([*request.arguments, request.module]).encode())  # for `top`: "train ..."
    try:
        runpy.run_module(request.module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    _leave(code)


def _leave(code: int) -> NoReturn:
    """End as the interpreter does, but leave the loaded modules to the system: to clear them takes it 0.4 s."""
    threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing ends its forked processes
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def main() -> None:
    """Load the libraries, serve, and in a child go on with its request."""
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    libraries = [place for place in sys.path[1:] if place not in own]  # the first is this process's folder
    os.environ.update(_WAITING | os.environ)
    given = dict(os.environ)
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        asked, _, _ = select.select([sys.stdin, listener], [], [])  # nothing is loaded before a command asks
        for name in sys.argv[2:] if listener in asked else ():
            importlib.import_module(name)
        gc.freeze()  # or each child's first collection would copy all that was loaded
        taken = serve(listener, given)
        if taken is None:  # the process that would remove the socket may have been killed
            address = Path(listener.getsockname())
            address.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty: a folder of somebody else's
                address.parent.rmdir()
    if taken:
        work(*taken, libraries, dict(os.environ.items() - given.items()))


if __name__ == "__main__":
    main()
