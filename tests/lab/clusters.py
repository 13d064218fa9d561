"""A real cluster of two nodes on this machine, for tests: in namespaces of its own, so that nothing listens outside and nothing
outlives it. Where it cannot be started, `Unavailable` says why.

Slurm's programs are taken from the path, or from the folder that SLURM_ROOT names, into which Debian's packages were unpacked
(`dpkg -x`): libhwloc15 liblua5.1-0 libmunge2 munge slurm-wlm-basic-plugins slurm-client slurmctld slurmd.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
import tiny


class Unavailable(Exception):
    """A cluster cannot be started here."""


class Slurm:
    """Two nodes of one core each, of which tests may take one down.

    They have a network and process namespace: its only network is the loopback device, and its processes end with it.
    """

    def __init__(self) -> None:
        unpacked = os.environ.get("SLURM_ROOT")
        root = Path(unpacked or "/")
        places = [root / place for place in ("usr/bin", "usr/sbin", "bin", "sbin")]
        path = os.pathsep.join([*map(str, places), os.environ["PATH"]])
        names = ("sbatch", "munged", "mungekey", "unshare", "nsenter", "ip", "slurmctld", "slurmd", "slurmstepd")
        self.programs = {name: shutil.which(f"{name}-wlm", path=path) or shutil.which(name, path=path) for name in names}
        if missing := [name for name, found in self.programs.items() if found is None]:
            raise Unavailable(f"no {', '.join(missing)} on the path or in the folder that SLURM_ROOT names")
        # The first process is a shell, which fetches what others left behind, and ends when its input does: with these tests.
        command = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", "read -r _"]
        self._outer = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + 30
        while not (found := psutil.Process(self._outer.pid).children()) and time.monotonic() < until:
            if self._outer.poll() is not None:
                raise Unavailable(f"unshare: {self._outer.communicate()[1].strip()}")
            time.sleep(0.05)
        self._first = found[0]
        self.folder = Path(tempfile.mkdtemp(prefix="c-", dir="/tmp"))  # short: paths of sockets have 107 letters
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("DVC_", "DICAP_", "GIT_", "SLURM_"))}
        self.run("ip", "link", "set", "lo", "up")
        # glibc resolves not even 127.0.0.1 for Slurm (AI_ADDRCONFIG) where no device has another address; this one leads nowhere.
        self.run("ip", "address", "add", "192.0.2.1/32", "dev", "lo")
        libraries = next(root.glob("usr/lib/*/slurm-wlm"), Path("/usr/lib/slurm-wlm"))
        self.environment |= {"PATH": path, "SLURM_CONF": str(self.folder / "slurm.conf")}
        if unpacked:  # installed it finds them; the system's folder on this path gave a Python built shared another libpython
            self.environment["LD_LIBRARY_PATH"] = os.pathsep.join([str(libraries.parent), str(libraries)])
        host, place = socket.gethostname(), self.folder
        for folder in ("ctld", "n1", "n2"):
            (place / folder).mkdir()
        place.chmod(0o755)
        (place / "slurm.conf").write_text(
            f"ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n"
            f"AuthInfo=socket={place}/munge.socket\nCredType=cred/munge\nPluginDir={libraries}\nStateSaveLocation={place}/ctld\n"
            f"SlurmdSpoolDir={place}/%n\nSlurmctldPidFile={place}/ctld.pid\nSlurmdPidFile={place}/%n.pid\n"
            f"SlurmctldLogFile={place}/ctld.log\nSlurmdLogFile={place}/%n.log\nSlurmctldPort=16817\n"
            "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
            "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nMpiDefault=none\nReturnToService=2\nSlurmdTimeout=20\n"
            "KillWait=10\nBatchStartTimeout=10\nSchedulerParameters=sched_interval=2,bf_interval=2\n"
            f"NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port=17001 CPUs=1\n"
            f"NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port=17002 CPUs=1\n"
            "PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP\n"
        )
        self._ready(
            self.run("mungekey", "--create", f"--keyfile={place}/munge.key"),
            self.run(
                "munged", "--force", f"--key-file={place}/munge.key", f"--socket={place}/munge.socket",
                f"--pid-file={place}/munged.pid", f"--log-file={place}/munged.log", f"--seed-file={place}/munged.seed",
            ),
            self.run(str(self.programs["slurmctld"]), "-c"),
        )  # fmt: skip
        for node in ("n1", "n2"):
            self.node(node)
        until = time.monotonic() + 60
        while self.run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() != "2":
            if time.monotonic() > until:
                told = self.run("sinfo", "-N", "-l").stdout
                self.close()
                raise Unavailable(f"Slurm's nodes do not come up: {told}")
            time.sleep(0.5)

    def node(self, name: str) -> None:
        """Start a node."""
        self._ready(self.run(str(self.programs["slurmd"]), "-N", name, "-d", str(self.programs["slurmstepd"])))

    def daemon(self, job: psutil.Process) -> psutil.Process:
        """The node's daemon: what it started knows the node's name."""
        name = job.environ()["SLURMD_NODENAME"]
        return next(process for process in self.processes() if process.name().startswith("slurmd") and name in process.cmdline())

    def _ready(self, *done: subprocess.CompletedProcess) -> None:
        for each in done:
            if each.returncode:
                self.close()
                raise Unavailable(f"{each.args[0]}: {each.stdout[-300:]}")

    def start(self, *command: str, **options) -> subprocess.Popen:
        """A command in the namespace."""
        inside = ["nsenter", "-t", str(self._first.pid), "-n", "-p", "-m", f"--wd={options.pop('cwd', self.folder)}", *command]
        return subprocess.Popen(inside, env=self.environment | options.pop("env", {}), **options)

    def run(self, *command: str, timeout: float = 120, **options) -> subprocess.CompletedProcess:
        """The same, to its end."""
        process = self.start(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        output, _ = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(command, process.returncode, output, "")

    def processes(self) -> list[psutil.Process]:
        """What runs in the namespace."""
        return [process for process in self._first.children(recursive=True) if tiny.alive(process)]

    def find(self, *words: str) -> list[psutil.Process]:
        """Those whose command line holds all the words."""
        found = []
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                line = " ".join(process.cmdline())
                if all(word in line for word in words):
                    found.append(process)
        return found

    def close(self) -> None:
        """End everything in it."""
        self._first.kill()
        self._outer.wait(timeout=60)
        shutil.rmtree(self.folder, ignore_errors=True)
