"""Two processes that share every step end where one does, and leave a usable state when one of them is killed.

The network has no BatchNorm and no dropout: two processes normalise by the statistics of their own images and drop other
entries than one process does, so with either the losses differ, and should.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from ruamel.yaml import YAML

from dicap.artifacts import read_parquet
from dicap.errors import SettingsError
from dicap.training.state import _read
from dicap.training.world import Alone

pytestmark = pytest.mark.timeout(3000)  # many processes start, and import torch, one after the other

CHANGES = tiny.CHANGES | {
    "backbone": "test_convnext",
    "network.stride": 32,
    "network.dropout": 0.0,
    "warmup.epochs": 1,
    "warmup.eval_every": 1,
    "train.epochs": 2,
    "train.batch_size": 9,  # 2 + 7 images: neither divides
    "finetune.epochs": 1,  # of 2 images a step, which two processes do not share
}
STAGES = ("warmup", "pseudo-label", "train", "finetune", "evaluate")


def environment(processes):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DICAP_", "DVC_"))}
    return kept | {"DICAP_NPROC": str(processes), "DICAP_DEVICE": "cpu", "PYTHONPATH": str(tiny.ROOT), "OMP_NUM_THREADS": "1"}


def stage(folder, name, processes):
    command = [sys.executable, "-m", "stages.cli", name]
    done = subprocess.run(command, cwd=folder, env=environment(processes), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def start(raw_photos, tmp_path_factory):
    """A project in which the set is converted and split."""
    folder = tmp_path_factory.mktemp("start")
    shutil.copytree(tiny.ROOT / "configs", folder / "configs")
    values = YAML(typ="safe", pure=True).load((tiny.ROOT / "params.yaml").read_text())
    with open(folder / "params.yaml", "w") as handle:
        YAML().dump(tiny.nested(values, CHANGES | {"data_root": str(raw_photos)}), handle)
    for name in ("convert", "split"):
        code, _, errors = stage(folder, name, 1)
        assert code == 0, errors
    return folder


@pytest.fixture(scope="module")
def runs(start, tmp_path_factory):
    """The same project run by one process and by two."""
    folders = {}
    for processes in (1, 2):
        folders[processes] = tmp_path_factory.mktemp("run") / "project"
        shutil.copytree(start, folders[processes])
        for name in STAGES:
            code, out, errors = stage(folders[processes], name, processes)
            assert code == 0, errors
            assert out.count(f"{name}: ") == (name != "evaluate"), "one of them speaks"
    return folders


def frames(runs, name):
    return [pd.read_csv(runs[processes] / "artifacts" / name) for processes in (1, 2)]


@pytest.mark.parametrize("name", ["warmup", "train", "finetune"])
def test_losses_shares_and_scores_of_every_epoch_are_those_of_one_process(runs, name):
    one, two = frames(runs, f"{name}/history.csv")
    assert list(one) == list(two) and len(one) == len(two)
    assert one["loss"].notna().all() and (name == "finetune" or (one["loss_con"] > 0).any())
    np.testing.assert_allclose(two.to_numpy(dtype=float), one.to_numpy(dtype=float), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["weights", "thresholds", "pseudo_labels"])
def test_rates_thresholds_and_pseudo_labels_are_those_of_one_process(runs, kind):
    for name in ("pseudo_label", "train"):
        one, two = (pd.read_parquet(runs[n] / "artifacts" / name / kind) for n in (1, 2))
        assert len(one) == len(two) > 0
        for column in one:
            if one[column].dtype == object or str(one[column].dtype).startswith("str"):
                values = [np.stack(f[column]) if isinstance(f[column].iloc[0], np.ndarray) else f[column] for f in (one, two)]
                if not isinstance(values[0], np.ndarray):
                    assert values[0].tolist() == values[1].tolist()
                    continue
            else:
                values = [f[column].to_numpy(dtype=float) for f in (one, two)]
            tolerance = 1e-3 if kind == "pseudo_labels" else 1e-5  # halves
            np.testing.assert_allclose(*(v.astype(float) for v in values), rtol=tolerance, atol=tolerance)


def test_every_test_image_is_scored_once_and_the_result_is_the_same(runs):
    scores = []
    for processes in (1, 2):
        table = read_parquet(runs[processes] / "artifacts" / "evaluate" / "predictions.parquet")
        ids = table["id"].to_pylist()
        assert len(ids) == len(set(ids)) == tiny.COUNTS["test"]
        scores.append(np.stack(table["score"].to_numpy()))
    np.testing.assert_allclose(*scores, atol=1e-5)
    one, two = frames(runs, "evaluate/per_class.csv")
    np.testing.assert_allclose(one["ap"], two["ap"], atol=1e-5)


def test_models_of_both_hold_nearly_the_same_numbers(runs):
    from safetensors.torch import load_file

    one, two = (load_file(runs[n] / "artifacts" / "train" / "model.safetensors") for n in (1, 2))
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-4, atol=1e-5)


def started(folder):
    """Two processes that train for long, once their state was saved; and the second one's number."""
    values = YAML(typ="safe", pure=True).load((folder / "params.yaml").read_text())
    values["train"]["epochs"], values["train"]["eval_every"] = 2000, 2000
    with open(folder / "params.yaml", "w") as handle:
        YAML().dump(values, handle)
    command = [sys.executable, "-m", "stages.cli", "train"]
    process = subprocess.Popen(
        command, cwd=folder, env=environment(2), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    until = time.monotonic() + 900
    while not list(folder.glob(".dicap/state/train-*/previous.pt")):
        assert process.poll() is None and time.monotonic() < until, process.stdout.read()
        time.sleep(0.1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (second,) = (int(pid) for pid in children if b"RANK=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    return process, second


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for a process in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_one_process_ends_both_do_and_the_state_is_whole(runs, tmp_path, number):
    folder = tmp_path / "project"
    shutil.copytree(runs[2], folder)
    process, second = started(folder)
    os.kill(second, number)
    output, _ = process.communicate(timeout=900)
    assert process.returncode == (75 if number == signal.SIGTERM else 1), output
    assert "Traceback" not in output
    assert ("another process of this run ended" in output) == (number == signal.SIGKILL), output
    (state,) = folder.glob(".dicap/state/train-*/state.pt")
    saved = _read(state)
    assert saved is not None and saved["epoch"] >= 1
    assert not Path(f"/proc/{second}").exists()


class Two(Alone):
    rank, size = 0, 2


@pytest.mark.parametrize("changes", [{"method": "pclp"}, {"method": "drml"}, {"loss.reduction": "mean"}])
def test_what_one_process_alone_can_do_is_refused_with_its_name(tiny_set, tmp_path, changes):
    from dicap.runtime import Runtime
    from dicap.training.experiment import Experiment

    s = tiny.settings(changes)
    split = tiny.draw_split(tiny_set, tmp_path / "split.parquet", s)
    with pytest.raises(SettingsError, match="runs in one process only") as caught:
        Experiment.open(s, Runtime(torch.device("cpu")), tiny_set, split, Two())
    assert str(next(iter(changes.values()))) in str(caught.value)


def test_one_process_imports_nothing_of_several():
    code = "import sys; from dicap.training import loop, run; sys.exit('dicap.training.distributed' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment(1), check=False).returncode == 0
