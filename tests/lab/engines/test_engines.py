"""What every engine does with jobs: `here` for real, Slurm against stand-ins (tests/faults/test_sweeps.py has the real one)."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import psutil
import pytest
import tiny

from dicap.errors import DataError
from stages.lab.sweeps.engines import here as here_module
from stages.lab.sweeps.engines import slurm as slurm_module
from stages.lab.sweeps.engines.base import Job, reason_in
from stages.lab.sweeps.engines.here import Here
from stages.lab.sweeps.engines.slurm import Slurm


def job(folder: Path, name: str, script: str = "true", **options) -> Job:
    return Job(name, ("sh", "-c", script), folder, folder / f"{name}.log", **options)


class Instant(Here):
    """Jobs that end in the order in which they began; those whose name holds `bad` fail."""

    def __init__(self, at_once):
        super().__init__(at_once)
        self.began: list[str] = []
        self.most = 0

    def _start(self, job):
        self.began.append(job.name)

    def _next(self):
        self.most = max(self.most, len(self._running))
        name = next(iter(self._running))
        return name, "bad" not in name


@pytest.mark.parametrize(("at_once", "most"), [(1, 1), (2, 2), (9, 4)])
def test_so_many_jobs_at_a_time_as_they_were_submitted(tmp_path, at_once, most):
    engine = Instant(at_once)
    for name in "abcd":
        engine.submit(job(tmp_path, name))
    assert list(engine.watch()) == [(name, True) for name in "abcd"] and engine.most == most


def test_what_waits_for_another_lets_later_ones_pass_and_fails_with_it(tmp_path):
    engine = Instant(2)
    for name, *after in (("first",), ("bad",), ("one", "first"), ("two", "first", "bad"), ("three", "two"), ("free",)):
        engine.submit(job(tmp_path, name, after=(*after,)))
    ends = dict(engine.watch())
    assert ends == {"first": True, "bad": False, "one": True, "two": False, "three": False, "free": True}
    assert engine.began == ["first", "bad", "one", "free"]
    assert engine.reason("two") == "bad failed, which it needs" and engine.reason("one") is None


def test_here_jobs_run_in_their_folder_with_their_environment_and_log(tmp_path):
    engine = Here(2)
    (tmp_path / "good.log").write_text("before\n")
    engine.submit(job(tmp_path, "good", "echo $COLOUR; pwd", environment={"COLOUR": "red"}))
    engine.submit(job(tmp_path, "fails", "echo '== again'; echo 'Error: no luck' >&2; exit 3"))
    assert dict(engine.watch()) == {"good": True, "fails": False}
    assert (tmp_path / "good.log").read_text() == f"before\nred\n{tmp_path}\n"
    assert engine.reason("fails") is None and reason_in(tmp_path / "fails.log") == "Error: no luck"


def test_here_nothing_that_a_killed_job_started_runs_on(tmp_path):
    engine = Here(1)
    engine.submit(job(tmp_path, "killed", "sleep 600 & echo $! > child; kill -9 $$"))
    assert list(engine.watch()) == [("killed", False)] and engine.reason("killed") == "ended by SIGKILL"
    child = int((tmp_path / "child").read_text())
    tiny.wait_until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)


def test_here_cancelled_jobs_are_asked_to_end(tmp_path):
    engine = Here(1)
    engine.submit(job(tmp_path, "long", "trap 'echo saved; exit 75' TERM; echo begun; while :; do sleep 0.1; done"))
    engine.submit(job(tmp_path, "never", "echo begun"))
    ends = engine.watch()
    watching = threading.Thread(target=lambda: list(ends), daemon=True)
    watching.start()
    log = tmp_path / "long.log"
    tiny.wait_until(lambda: "long" in engine._processes and "begun" in log.read_text())
    engine.cancel()
    watching.join(timeout=60)
    assert "saved" in log.read_text() and not (tmp_path / "never.log").exists()


def test_here_each_gpu_is_for_one_job_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    engine = Here(3)
    for k in range(4):
        engine.submit(job(tmp_path, f"job{k}", 'echo "$CUDA_VISIBLE_DEVICES" >> seen; sleep 0.3', gpus=1 + (k == 0)))
    assert all(succeeded for _, succeeded in engine.watch())
    seen = (tmp_path / "seen").read_text().split()
    assert len(seen) == 4 and {"4,6"} < set(seen) and set(seen) <= {"4,6", "7", "4", "6"}
    assert sorted(engine._free()) == ["4", "6", "7"]


def test_here_what_this_machine_does_not_have_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    Here(1).check(job(tmp_path, "small", gpus=1))
    with pytest.raises(DataError, match=r"--gpus 2: this machine has 1$"):
        Here(1).check(job(tmp_path, "large", gpus=2))
    monkeypatch.setattr(here_module, "cores", lambda: 4)
    with pytest.raises(DataError, match="--cpus 5: this machine has 4 processor cores"):
        Here(1).check(job(tmp_path, "large", cpus=5))


def test_a_job_whose_parent_dies_ends_with_all_it_started(tmp_path):
    """One child that stops when asked, one that does not."""
    (tmp_path / "job.py").write_text(
        textwrap.dedent("""\
        import pathlib, signal, subprocess, sys, time
        from stages.support.parent import end_with_parent
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and pass that on
        deaf = subprocess.Popen(["sh", "-c", "trap '' INT; echo $$ > deaf; while :; do sleep 0.1; done"])
        soft = subprocess.Popen(["sh", "-c", "trap 'echo saved > soft; exit' INT; echo > listening; while :; do sleep 0.1; done"])
        end_with_parent(lambda: pathlib.Path("cleaned").touch(), interval=0.05, grace=2.0)
        pathlib.Path("ready").touch()
        time.sleep(600)
        """)
    )
    under = "import subprocess, sys; subprocess.run([sys.executable, 'job.py'])"
    environment = dict(os.environ) | {"PYTHONPATH": str(tiny.ROOT)}
    process = subprocess.Popen([sys.executable, "-c", under], cwd=tmp_path, env=environment, start_new_session=True)
    tiny.wait_until(lambda: all((tmp_path / name).exists() for name in ("ready", "listening", "deaf")))
    tree = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    tiny.wait_until(lambda: not any(map(tiny.alive, tree)))
    assert (tmp_path / "soft").exists() and (tmp_path / "cleaned").exists()


# ---- Slurm, by stand-ins for its programs

SBATCH = r"""
import os, pathlib, subprocess, sys
arguments, home = sys.argv[1:], pathlib.Path(os.environ["FAKE_SLURM"])
def value(flag):
    found = [a.split("=", 1)[1] for a in arguments if a.startswith(flag + "=")]
    return (found or [arguments[arguments.index(flag) + 1] if flag in arguments else ""])[0]
if int(value("--cpus-per-task")) > 4:
    sys.exit("sbatch: error: Batch job submission failed: Requested node configuration is not available")
script = sys.stdin.read()
if "--test-only" in arguments:
    sys.exit(0)
number = len(list(home.glob("*.job"))) + 1
(home / f"{number}.arguments").write_text("\n".join(arguments))
state, needed = "COMPLETED", [c.split(":") for c in value("--dependency").split(",") if c]
if any(kind == "afterok" and "COMPLETED" not in (home / f"{n}.job").read_text() for kind, *all in needed for n in all):
    state = "CANCELLED"
else:
    with open(value("--output"), "ab") as log:
        code = subprocess.run(["sh"], input=script.encode(), cwd=value("--chdir"), stdout=log, stderr=log).returncode
    state = {0: "COMPLETED", 9: "TIMEOUT", 8: "NODE_FAIL"}.get(code, "FAILED")
why = "DependencyNeverSatisfied" if state == "CANCELLED" else "NonZeroExitCode"
(home / f"{number}.job").write_text(f"{number}|{state}|{why}|{value('--chdir')}|{value('--job-name')}")
print(f"{number};cluster")
"""
SQUEUE = r"""
import os, pathlib, sys
home = pathlib.Path(os.environ["FAKE_SLURM"])
down = home / "down"
if down.exists():
    down.write_text(down.read_text()[1:])
    if not down.read_text():
        down.unlink()
    sys.exit("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
for path in sorted(home.glob("*.job")):
    print(path.read_text())
    requeued = path.with_suffix(".requeue")
    if requeued.exists():
        path.write_text(requeued.read_text())
        requeued.unlink()
"""
SCONTROL = "import os, pathlib, sys; (pathlib.Path(os.environ['FAKE_SLURM']) / 'released').write_text(' '.join(sys.argv[1:]))"
SCANCEL = "import os, pathlib, sys; (pathlib.Path(os.environ['FAKE_SLURM']) / 'cancelled').write_text(' '.join(sys.argv[1:]))"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """The folder in which the stand-ins keep their jobs; they run them at once."""
    home, place = tmp_path / "slurm", tmp_path / "bin"
    home.mkdir()
    place.mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL), ("scontrol", SCONTROL)):
        (place / name).write_text(f"#!{sys.executable}\n{text}")
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(home))
    return home


def test_slurms_jobs_tell_how_they_ended(slurm, tmp_path):
    engine = Slurm(None, interval=0)
    engine.submit(job(tmp_path, "good", 'echo "$COLOUR"; pwd', environment={"COLOUR": "red and 'blue'"}, cpus=3, gpus=1))
    engine.submit(job(tmp_path, "fails", "echo Error: no luck; exit 3"))
    engine.submit(job(tmp_path, "long", "exit 9"))
    engine.submit(job(tmp_path, "after", after=("fails",)))
    engine.submit(job(tmp_path, "next", after=("good",)))
    assert dict(engine.watch()) == {"good": True, "fails": False, "long": False, "after": False, "next": True}
    assert (tmp_path / "good.log").read_text() == f"red and 'blue'\n{tmp_path}\n"
    assert engine.reason("fails") is None, "the log says it"
    assert engine.reason("long") == "Slurm: timeout (NonZeroExitCode)"
    assert engine.reason("after") == "Slurm: cancelled (DependencyNeverSatisfied)"
    arguments = (slurm / "1.arguments").read_text().splitlines()
    assert {"--cpus-per-task=3", "--gres=gpu:1", "--requeue", "--open-mode=append"} <= set(arguments)
    assert not [line for line in (slurm / "2.arguments").read_text().splitlines() if "gres" in line or "dependency" in line]


def test_slurms_jobs_at_a_time_are_a_chain_of_dependencies(slurm, tmp_path):
    engine = Slurm(2, interval=0)
    for name in "abcd":
        engine.submit(job(tmp_path, name, after=tuple("abc"[: "abcd".index(name)])))
    chains = [
        [line for line in (slurm / f"{k}.arguments").read_text().splitlines() if line.startswith("--dependency")]
        for k in (1, 2, 3, 4)
    ]
    assert chains == [
        [],
        ["--dependency=afterok:1"],
        ["--dependency=afterok:1:2,afterany:1"],
        ["--dependency=afterok:1:2:3,afterany:2"],
    ]


def test_slurms_jobs_under_way_are_found_again_by_name_and_folder(slurm, tmp_path):
    for number, state, folder, name in (
        (1, "RUNNING", tmp_path, "a"),
        (2, "PENDING", "/else/where", "b"),
        (3, "FAILED", tmp_path, "c"),
    ):
        (slurm / f"{number}.job").write_text(f"{number}|{state}|None|{folder}|{name}")
        (slurm / f"{number}.requeue").write_text(f"{number}|COMPLETED|None|{folder}|{name}")
    engine = Slurm(None, interval=0)
    for name in "abc":
        engine.submit(job(tmp_path, name))
    assert len(list(slurm.glob("*.arguments"))) == 2, "b is another project's, c is to run again"
    assert dict(engine.watch()) == {"a": True, "b": True, "c": True}


def test_a_job_that_slurm_is_about_to_queue_again_has_not_ended(slurm, tmp_path):
    engine = Slurm(None, interval=0)
    engine.submit(job(tmp_path, "a", "exit 8"))
    engine.submit(job(tmp_path, "b", "exit 8"))
    (slurm / "1.requeue").write_text(f"1|COMPLETED|None|{tmp_path}|a")
    assert dict(engine.watch()) == {"a": True, "b": False} and engine.reason("b") == "Slurm: node_fail (NonZeroExitCode)"


def test_a_job_whose_start_failed_is_released(slurm, tmp_path):
    engine = Slurm(None, interval=0)
    engine.submit(job(tmp_path, "a"))
    (slurm / "1.requeue").write_text((slurm / "1.job").read_text())
    (slurm / "1.job").write_text(f"1|PENDING|launch failed requeued held|{tmp_path}|a")
    assert dict(engine.watch()) == {"a": True} and (slurm / "released").read_text() == "release 1"


def test_a_controller_that_does_not_answer_for_a_while_is_asked_again(slurm, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_module, "_PATIENCE", 4)
    engine = Slurm(None, interval=0)
    engine.submit(job(tmp_path, "a"))
    (slurm / "down").write_text("." * 3)
    assert dict(engine.watch()) == {"a": True}
    (slurm / "down").write_text("." * 99)
    with pytest.raises(DataError, match=r"Unable to contact slurm controller.*the jobs go on without being watched"):
        list(engine.watch())


def test_what_slurm_cannot_do_is_said_in_its_own_words(slurm, tmp_path, monkeypatch):
    engine = Slurm(None, interval=0)
    engine.check(job(tmp_path, "fits", cpus=4))
    for refused in (engine.check, engine.submit):
        with pytest.raises(DataError, match="sbatch: Batch job submission failed: Requested node configuration is not available"):
            refused(job(tmp_path, "large", cpus=5))
    engine.submit(job(tmp_path, "a"))
    engine.cancel()
    assert (slurm / "cancelled").read_text() == "1"
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DataError, match="no sbatch on this machine; run this where Slurm's commands are"):
        engine.check(job(tmp_path, "fits"))
