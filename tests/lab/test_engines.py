"""What every engine does with jobs: `here` for real, Slurm against stand-ins (tests/faults/test_sweeps.py has the real one)."""

import os
import re
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
from stages.lab.sweeps.engines import Job, reason_in
from stages.lab.sweeps.engines.here import Here
from stages.lab.sweeps.engines.slurm import Slurm


def job(folder: Path, name: str, script: str = "true", **options) -> Job:
    return Job(name, ("sh", "-c", script), folder, folder / f"{name}.log", **options)


@pytest.mark.parametrize("at_once", [1, 2])
def test_here_so_many_jobs_at_a_time_in_the_order_given(tmp_path, at_once):
    """Each says that it begins, sees who runs beside it, and ends a moment later."""
    script = "echo $0 >> order; touch $0.on; ls *.on | wc -l >> most; sleep 0.2; rm $0.on"
    jobs = [Job(name, ("sh", "-c", script, name), tmp_path, tmp_path / f"{name}.log") for name in "abcd"]
    assert dict(Here(at_once).run(jobs)) == dict.fromkeys("abcd")
    order = (tmp_path / "order").read_text().split()
    assert sorted(order) == [*"abcd"] and (at_once > 1 or order == [*"abcd"])
    assert max(map(int, (tmp_path / "most").read_text().split())) == at_once


def test_here_jobs_run_in_their_folder_and_their_logs_say_why_they_fail(tmp_path):
    (tmp_path / "good.log").write_text("before\n")
    jobs = [
        job(tmp_path, "good", "echo $COLOUR; pwd", environment={"COLOUR": "red"}),
        job(tmp_path, "bad", "echo '== again'; echo 'Error: no luck' >&2; exit 3"),
    ]
    assert dict(Here(2).run(jobs)) == {"good": None, "bad": ""}
    assert (tmp_path / "good.log").read_text() == f"before\nred\n{tmp_path}\n"
    assert reason_in(tmp_path / "bad.log") == "Error: no luck"


def test_here_nothing_that_a_killed_job_started_runs_on(tmp_path):
    killed = job(tmp_path, "killed", "sleep 600 & echo $! > child; kill -9 $$")
    assert list(Here(1).run([killed])) == [("killed", "ended by SIGKILL")]
    child = int((tmp_path / "child").read_text())
    tiny.wait_until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)


def test_here_jobs_that_nobody_watches_any_more_are_asked_to_end(tmp_path):
    jobs = [
        job(tmp_path, "short"),
        job(tmp_path, "long", "trap 'echo saved; exit 75' TERM; echo begun; while :; do sleep 0.1; done"),
        job(tmp_path, "never", "echo begun"),
    ]
    ends, log = Here(1).run(jobs), tmp_path / "long.log"
    assert next(ends) == ("short", None)
    tiny.wait_until(lambda: log.exists() and "begun" in log.read_text())
    closing = threading.Thread(target=ends.close)  # as `sweep` does after Ctrl-C
    closing.start()
    closing.join(timeout=60)
    assert not closing.is_alive() and "saved" in log.read_text() and not (tmp_path / "never.log").exists()


def test_here_each_gpu_is_for_one_job_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    one = "mkdir busy$CUDA_VISIBLE_DEVICES && sleep 0.2 && rmdir busy$CUDA_VISIBLE_DEVICES"
    two = "test $CUDA_VISIBLE_DEVICES = 4,6 && mkdir busy4 busy6 && sleep 0.2 && rmdir busy4 busy6"
    jobs = [job(tmp_path, "two", two, gpus=2), *(job(tmp_path, f"{k}", one, gpus=1) for k in range(4))]
    assert set(dict(Here(3).run(jobs)).values()) == {None}


def test_here_what_this_machine_does_not_have_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    Here(1).check(job(tmp_path, "small", gpus=1))
    with pytest.raises(DataError, match=r"--gpus 2: this machine has 1$"):
        Here(1).check(job(tmp_path, "large", gpus=2))
    monkeypatch.setattr("stages.lab.sweeps.engines.here.cores", lambda: 4)
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
        end_with_parent(interval=0.05, grace=2.0)
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
    assert (tmp_path / "soft").exists()


# ---- Slurm, by stand-ins for its programs: sbatch keeps what it is given, squeue gives one answer after another

SBATCH = r"""
import os, pathlib, sys
home = pathlib.Path(os.environ["FAKE_SLURM"])
if "--cpus-per-task=5" in sys.argv:
    sys.exit("sbatch: error: Batch job submission failed: Requested node configuration is not available")
if "--test-only" not in sys.argv:
    number = len(list(home.glob("*.script"))) + 1
    (home / f"{number}.arguments").write_text("\n".join(sys.argv))
    (home / f"{number}.script").write_text(sys.stdin.read())
    print(f"{number};cluster")
"""
SQUEUE = r"""
import os, pathlib, sys
path = pathlib.Path(os.environ["FAKE_SLURM"]) / "answers"
answer, _, later = path.read_text().partition("\n\n")
path.write_text(later or answer)
sys.exit("slurm_load_jobs error: Unable to contact slurm controller" if answer == "down" else print(answer))
"""
SCONTROL = "import os, pathlib, sys; (pathlib.Path(os.environ['FAKE_SLURM']) / 'released').write_text(' '.join(sys.argv[1:]))"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """The folder in which the stand-ins keep their jobs and answers."""
    home, place = tmp_path / "slurm", tmp_path / "bin"
    home.mkdir()
    place.mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("scontrol", SCONTROL)):
        (place / name).write_text(f"#!{sys.executable}\n{text}")
        (place / name).chmod(0o755)
    (home / "answers").write_text("nothing")
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(home))
    return home


def test_slurms_jobs_tell_how_they_ended(slurm, tmp_path):
    """One whose node died is queued again, one whose start failed is released, one is forgotten."""
    looks = [
        ["1|COMPLETED|None", "2|FAILED|NonZeroExitCode", "3|NODE_FAIL|None", "5|PENDING|launch failed requeued held"],
        ["2|FAILED|NonZeroExitCode", "3|PENDING|BeginTime", "5|COMPLETED|None"],
        ["3|TIMEOUT|TimeLimit"],
    ]
    (slurm / "answers").write_text("\n\n".join(["nothing", *("\n".join(f"{line}|/|x" for line in look) for look in looks)]))
    jobs = [job(tmp_path, name) for name in ("good", "fails", "long", "forgotten", "held")]
    assert list(Slurm(None, interval=0).run(jobs)) == [
        ("good", None),
        ("forgotten", "Slurm no longer lists the job"),
        ("fails", ""),  # the log says it
        ("held", None),
        ("long", "Slurm: timeout (TimeLimit)"),
    ]
    assert (slurm / "released").read_text() == "release 5"


def test_slurms_jobs_get_what_they_need(slurm, tmp_path):
    (slurm / "answers").write_text("nothing")
    needs = {"environment": {"COLOUR": "red and 'blue'"}, "cpus": 3, "gpus": 1}
    list(Slurm(None, interval=0).run([job(tmp_path, "good", 'echo "$COLOUR"', **needs), job(tmp_path, "small")]))
    arguments = (slurm / "1.arguments").read_text().splitlines()
    assert {"--cpus-per-task=3", "--gres=gpu:1", "--requeue", "--open-mode=append", str(tmp_path)} <= set(arguments)
    assert subprocess.check_output(["sh", slurm / "1.script"], text=True) == "red and 'blue'\n"
    assert "gres" not in (slurm / "2.arguments").read_text()


def test_slurms_jobs_at_a_time_are_a_chain_of_dependencies(slurm, tmp_path):
    list(Slurm(2, interval=0).run([job(tmp_path, name) for name in "abcd"]))
    texts = [(slurm / f"{number}.arguments").read_text() for number in (1, 2, 3, 4)]
    assert [re.findall("--dependency=(.*)", text) for text in texts] == [[], [], ["afterany:1"], ["afterany:2"]]


def test_slurms_jobs_under_way_are_found_again_by_name_and_folder(slurm, tmp_path):
    before = f"8|RUNNING|None|{tmp_path}|a\n7|PENDING|None|/else/where|b\n9|FAILED|None|{tmp_path}|c"
    (slurm / "answers").write_text(f"{before}\n\n8|COMPLETED|None|{tmp_path}|a")
    ends = dict(Slurm(None, interval=0).run([job(tmp_path, name) for name in "abc"]))
    assert ends["a"] is None and len(list(slurm.glob("*.arguments"))) == 2, "b is another project's, c is to run again"


@pytest.mark.parametrize("times", [3, 9])
def test_a_controller_that_does_not_answer_for_a_while_is_asked_again(slurm, tmp_path, monkeypatch, times):
    monkeypatch.setattr("stages.lab.sweeps.engines.slurm._PATIENCE", 4)
    (slurm / "answers").write_text("\n\n".join(["nothing", *["down"] * times, "1|COMPLETED|None|/|a"]))
    ends = Slurm(None, interval=0).run([job(tmp_path, "a")])
    if times < 4:
        assert list(ends) == [("a", None)]
    else:
        with pytest.raises(DataError, match=r"Unable to contact slurm controller; the jobs go on without being watched"):
            list(ends)


def test_what_slurm_cannot_do_is_said_in_its_own_words(slurm, tmp_path, monkeypatch):
    engine, large = Slurm(None, interval=0), job(tmp_path, "large", cpus=5)
    engine.check(job(tmp_path, "fits", cpus=4))
    why = "sbatch: Batch job submission failed: Requested node configuration is not available"
    with pytest.raises(DataError, match=why):
        engine.check(large)
    with pytest.raises(DataError, match=f"{why}; the 1 jobs that were submitted before go on"):
        list(engine.run([job(tmp_path, "a"), large]))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DataError, match="no sbatch on this machine; run this where Slurm's commands are"):
        engine.check(large)
