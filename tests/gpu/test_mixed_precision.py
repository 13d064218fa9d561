"""Half precision on the processor: how far a run is from that of float32."""

from dataclasses import replace

import pandas as pd
import pytest
import tiny
import torch

from dicap.machine.runtime import Runtime
from dicap.settings.methods import METHODS
from dicap.training.experiment import Experiment

from .test_steps import SMALL, stages_of

CPU = torch.device("cpu")
# Relative difference of the losses of an epoch: a rounding of the forward pass is 2^-8 in bfloat16 and 2^-11 in float16. The
# largest is BBAM's, 0.024 in float16, whose cosines are multiplied by 20; that of every other method is below 0.01.
BOUNDS = {torch.bfloat16: 0.05, torch.float16: 0.03}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_run_in_half_precision_is_close_to_that_in_float32(tiny_experiment, tmp_path, monkeypatch, method):
    """With the same pseudo-labels: of a network that knows nothing yet, a score's last bits decide on which side it falls."""
    predict, scaler = Experiment.predict, torch.amp.GradScaler
    in_float32 = Runtime(CPU)
    # An overflow leaves out a step, which is another run: with the usual scale the sums of BBAM overflow at once.
    monkeypatch.setattr(torch.amp, "GradScaler", lambda *a, **b: scaler(*a, init_scale=2.0**8, **b))
    monkeypatch.setattr(Experiment, "predict", lambda self, *a, **b: predict(replace(self, runtime=in_float32), *a, **b))
    experiment = tiny_experiment(SMALL | {"method": method, "head": METHODS[method].head})
    stage = stages_of(method)[: 1 + METHODS[method].unlabelled][-1]
    losses = {}
    for amp in (None, *BOUNDS):
        here = replace(experiment, runtime=Runtime(CPU, amp, 0))
        place = tiny.run_stage(here, stage, None, tmp_path / str(amp))
        losses[amp] = pd.read_csv(place / "history.csv")["loss"].to_numpy()
    for amp, bound in BOUNDS.items():
        assert losses[amp] == pytest.approx(losses[None], rel=bound)
