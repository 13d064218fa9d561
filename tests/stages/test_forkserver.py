"""The fork server: what runs in a child of it is what would have run in a process of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import tiny

from stages.sweeps.forkserver import ADDRESS, LIBRARIES, fork_server, run

SHOWS = """
import json, os, sys
import stages
shown = {"arguments": sys.argv[1:], "folder": os.getcwd(), "path": sys.path[0], "stages": stages.WHOSE}
shown |= {"environment": {**os.environ}, "process": os.getpid(), "loaded": "colorsys" in sys.modules}
shown["threads"] = len(os.listdir("/proc/self/task"))
print(json.dumps(shown))
print("read:", sys.stdin.read(), file=sys.stderr)
sys.exit(7)
"""
WAITS = """
import pathlib, signal, sys, time
def stop(*_):
    pathlib.Path("stopped").touch()
    sys.exit(75)
signal.signal(signal.SIGTERM, stop)
pathlib.Path("begun").write_text(str(__import__("os").getpid()))
time.sleep(60)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks of loaded libraries are for Linux")


def environment() -> dict[str, str]:
    found = {key: value for key, value in os.environ.items() if not key.startswith(("DVC_", "DICAP_"))}
    return found | {"PYTHONPATH": str(tiny.ROOT)}


@pytest.fixture(scope="module")
def server():
    """The environment of commands that find a server which has loaded one module."""
    with fork_server(environment(), ("colorsys",)) as variables:
        yield environment() | variables


def project(folder: Path, **modules: str) -> Path:
    """A folder with a package `stages` of its own and some modules."""
    (folder / "stages").mkdir(parents=True)
    (folder / "stages" / "__init__.py").write_text(f"WHOSE = {folder.name!r}\n")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def until(condition, what: str) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def test_a_child_has_the_arguments_folder_environment_streams_and_code_of_its_command(server, tmp_path):
    found = []
    for name in ("first", "second"):
        folder, own = project(tmp_path / name, shows=SHOWS), server | {"DVC_STAGE": name}
        done = subprocess.run(
            tiny.forked("shows", "a b", "-c"), cwd=folder, env=own, input=name, capture_output=True, text=True, check=False
        )
        assert done.returncode == 7, done.stderr
        assert done.stderr == f"read: {name}\n"
        shown = json.loads(done.stdout)
        assert shown["arguments"] == ["a b", "-c"] and shown["folder"] == shown["path"] == str(folder)
        assert shown["stages"] == name, "the code of its own folder, not that of the server or of the command before"
        assert shown["environment"].items() >= own.items() - {(ADDRESS, server[ADDRESS])} and ADDRESS not in shown["environment"]
        assert shown["loaded"] and shown["threads"] == 1
        found.append(shown["process"])
    assert found[0] != found[1]


def test_errors_and_exit_codes_are_those_of_a_process_of_its_own(server, tmp_path):
    texts = {"fails": "raise RuntimeError('no')", "says": "raise SystemExit('no')", "nothing": ""}
    folder = project(tmp_path / "codes", killed="import os; os.kill(os.getpid(), 9)", **texts)
    for name, code in (("nothing", 0), ("fails", 1), ("says", 1), ("killed", 128 + signal.SIGKILL)):
        done = subprocess.run(tiny.forked(name), cwd=folder, env=server, capture_output=True, text=True, check=False)
        assert done.returncode == code, (name, done.stderr)
        assert ("no\n" in done.stderr) == (name in ("fails", "says"))


def test_a_command_with_another_environment_is_left_to_a_process_of_its_own(server, tmp_path):
    folder = project(tmp_path / "other", nothing="")
    for change, code in (({"OMP_NUM_THREADS": "7"}, 99), ({"HF_HUB_OFFLINE": "1"}, 99), ({"DICAP_DEVICE": "cpu"}, 0)):
        assert subprocess.run(tiny.forked("nothing"), cwd=folder, env=server | change, check=False).returncode == code, change
    nowhere = {ADDRESS: str(tmp_path / "nowhere")}
    assert subprocess.run(tiny.forked("nothing"), cwd=folder, env=server | nowhere, check=False).returncode == 99


def test_without_a_server_there_is_nothing_to_ask(monkeypatch):
    monkeypatch.delenv(ADDRESS, raising=False)
    assert run("nothing", []) is None


def test_where_there_is_one_already_none_is_started(server):
    with fork_server(server) as variables:
        assert variables == {}


def test_a_socket_whose_path_is_too_long_is_no_server(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with fork_server(environment(), ()) as variables:
        assert variables == {}


def test_signals_are_passed_on_and_a_killed_command_takes_its_child_with_it(server, tmp_path):
    for number, code in ((signal.SIGTERM, 75), (signal.SIGKILL, -signal.SIGKILL)):
        folder = project(tmp_path / number.name, waits=WAITS)
        process = subprocess.Popen(tiny.forked("waits"), cwd=folder, env=server)
        until(lambda folder=folder: (folder / "begun").exists() and (folder / "begun").read_text(), "it does not begin")
        child = psutil.Process(int((folder / "begun").read_text()))
        process.send_signal(number)
        assert process.wait(30) == code
        child.wait(30)
        assert (folder / "stopped").exists() == (number == signal.SIGTERM)


def test_a_signal_while_the_server_has_not_answered_is_not_lost(tmp_path):
    """It reaches the child where there will be one, and the command itself where it is left to do its own work."""
    for answer, code in ((b"-", -signal.SIGTERM), (b"+", 75)):
        with socket.socket(socket.AF_UNIX) as listener:
            address = str(tmp_path / f"socket{code}")
            listener.bind(address)
            listener.listen()
            process = subprocess.Popen(tiny.forked("nothing"), env=environment() | {ADDRESS: address})
            connection, _ = listener.accept()
            with connection:
                size, streams, _, _ = socket.recv_fds(connection, 8, 3)
                connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
                until(lambda process=process: handled(process.pid, signal.SIGTERM), "it takes no signals")
                process.send_signal(signal.SIGTERM)
                assert connection.recv(1) == bytes([signal.SIGTERM])
                connection.sendall(answer + bytes([75]))
                assert process.wait(30) == code
            for stream in streams:
                os.close(stream)


def handled(process: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal."""
    (line,) = (line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("victim", ["owner", "server"])
def test_nothing_outlives_the_owner_or_the_server(tmp_path, victim):
    folder, places = project(tmp_path / victim, waits=WAITS), Path(tempfile.mkdtemp())  # a socket's path has to be short
    owner_code = """
import os, subprocess, sys
from stages.sweeps.forkserver import fork_server
with fork_server(os.environ, ()) as variables:
    subprocess.run(sys.argv[2:], cwd=sys.argv[1], env=os.environ | variables)
"""
    arguments = ["-c", owner_code, str(folder), *tiny.forked("waits")]
    owner = subprocess.Popen([sys.executable, *arguments], env=environment() | {"TMPDIR": str(places)})
    until(lambda: (folder / "begun").exists() and (folder / "begun").read_text(), "it does not begin")
    child = psutil.Process(int((folder / "begun").read_text()))
    server = child.parent()
    assert server is not None and "stages.sweeps.forkserver" in server.cmdline()
    (owner if victim == "owner" else server).kill()
    child.wait(30)
    if victim == "owner":
        server.wait(30)
        assert not list(places.glob("dicap-*")), "the socket is left"
    owner.wait(30)


def test_libraries_are_loaded_without_threads_or_a_device():
    """A child of a process that had used its threads or a GPU could use neither."""
    code = f"""
import importlib, os
for name in {LIBRARIES!r}:
    importlib.import_module(name)
import torch
assert not torch.cuda.is_initialized() and not torch.cuda._is_in_bad_fork()
child = os.fork()
if child == 0:
    assert len(os.listdir("/proc/self/task")) == 1
    torch.set_num_threads(2)
    a = torch.randn(400, 400)
    os._exit(0 if (a @ a).isfinite().all() else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=environment() | {"OMP_NUM_THREADS": "2"}, timeout=120)
