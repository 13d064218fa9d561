"""Two or three processes that share every step end where one does."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import tiny
import torch

from dicap.errors import SettingsError
from dicap.files.tables import matrix, read_parquet
from dicap.machine.runtime import Runtime
from dicap.training.experiment import Experiment
from dicap.training.parallel.process_group import ProcessGroup
from stages.support.launch import launch

from . import together


@pytest.fixture(scope="module")
def places(tiny_set, tmp_path_factory):
    """What one process makes of the set, and what two and three make: 9 images a step, 5 in the last one."""
    places = {n: tmp_path_factory.mktemp(f"by{n}") for n in (1, 2, 3)}
    split = tiny.draw_split(tiny_set, places[1] / "split.parquet", tiny.settings(together.CHANGES))
    together.run(tiny_set, split, places[1])
    with tiny.warmed():
        for n in (2, 3):
            assert launch(n, [sys.executable, together.__file__, str(tiny_set), str(split), str(places[n])]) == 0
    return places


@pytest.fixture(params=[2, 3])
def runs(places, request):
    """Of one process, and of two or three."""
    return places[1], places[request.param]


def frames(runs, name):
    return [pd.read_csv(place / name) for place in runs]


STAGES = [f"{case}/{together.stage_of(changes['method'])}" for case, changes in together.CASES.items()]


@pytest.mark.parametrize("stage", [*STAGES, "warmup", "train", "finetune"])
def test_losses_shares_and_scores_of_every_epoch_are_those_of_one_process(runs, stage):
    one, more = frames(runs, f"{stage}/history.csv")
    assert list(one) == list(more) and len(one) == len(more) > 0 and one["loss"].notna().all()
    if stage in STAGES:  # scores a rounding apart change places
        one, more = (frame.drop(columns=["map_raw", "map_ema"]) for frame in (one, more))
    np.testing.assert_allclose(more.to_numpy(dtype=float), one.to_numpy(dtype=float), rtol=1e-5, atol=1e-5)
    assert stage not in ("warmup", "train") or (one["loss_con"] > 0).any()
    if stage == "few/train":  # entries of 27 images, for 12 or 8 parts of steps
        assert (one["loss_con"] > 0).all() and (one["share_uncertain"] < 0.1).all()


def test_rates_thresholds_and_pseudo_labels_are_those_of_one_process(runs):
    for kind, tolerance in (("weights", 1e-5), ("thresholds", 1e-5), ("pseudo_labels", 1e-3)):  # the last in halves
        for epoch in range(2):
            one, two = (read_parquet(place / "train" / kind / f"epoch={epoch:03d}" / "part-0.parquet") for place in runs)
            assert one.schema == two.schema and len(one) == len(two) > 0
            for name in one.column_names:
                if name in ("id", "class"):
                    assert one[name].to_pylist() == two[name].to_pylist()
                else:
                    values = [
                        t[name].to_numpy().astype(float) if kind != "pseudo_labels" else matrix(t[name]) for t in (one, two)
                    ]
                    np.testing.assert_allclose(*values, rtol=tolerance, atol=tolerance)


def test_every_test_image_is_scored_once_and_the_result_is_the_same(runs):
    tables = [read_parquet(place / "evaluate" / "predictions.parquet") for place in runs]
    for table in tables:
        assert len(set(table["id"].to_pylist())) == len(table) == tiny.COUNTS["test"]
    np.testing.assert_allclose(*(matrix(table["score"]) for table in tables), atol=1e-5)
    one, two = frames(runs, "evaluate/per_class.csv")
    np.testing.assert_allclose(one["ap"], two["ap"], atol=1e-5)


class Two(ProcessGroup):
    rank, size = 0, 2


@pytest.mark.parametrize("changes", [{"method": "pclp"}, {"method": "drml"}, {"loss.reduction": "mean"}])
def test_what_one_process_alone_can_do_is_refused_with_its_name(tiny_set, tmp_path, changes):
    s = tiny.settings(changes)
    split = tiny.draw_split(tiny_set, tmp_path / "split.parquet", s)
    with pytest.raises(SettingsError, match="runs in one process only") as caught:
        Experiment.open(s, Runtime(torch.device("cpu")), tiny_set, split, Two())
    assert str(next(iter(changes.values()))) in str(caught.value)


def test_one_process_imports_nothing_of_several_nor_a_compiler():
    code = (
        "import sys; sys.path.insert(0, 'tests'); import tiny, torch; from dicap.training import run; "
        "from dicap.training.loops.table import loop_of; loop_of('train', tiny.settings()); "
        "from dicap.training.optimisation import AdamW; p = torch.nn.Parameter(torch.ones(1)); p.grad = torch.ones(1); "
        "o = AdamW([p], fused=True); o.step(); o.load_state_dict(o.state_dict()); "
        "sys.exit('dicap.training.parallel.distributed' in sys.modules or 'torch._dynamo' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(tiny.ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tiny.ROOT, env=environment, check=False)
    assert done.returncode == 0
