"""Training on images that are labelled in part: only what is known counts, and methods that cannot say so."""

import numpy as np
import pytest
import tiny
from frozen.test_convex import RECOMMENDED

from dicap.data import labels as data_labels
from dicap.data.labels import read_labels
from dicap.errors import SettingsError
from dicap.settings.methods import METHODS
from dicap.training import experiment, hidden
from training.test_leaks import SHORT, models
from training.test_resume import SOURCES, run_all


@pytest.fixture(scope="module")
def partial(raw_photos, tmp_path_factory):
    place = tmp_path_factory.mktemp("partial")
    return tiny.converted(tiny.in_part(raw_photos, place / "raw"), place / "table")


@pytest.fixture
def renamed(monkeypatch):
    """A function that lets other negative numbers stand at unknown entries."""

    def put(number):
        def other(folder, rows, *, partial=False):
            labels = read_labels(folder, rows, partial=partial)
            assert labels.dtype == np.int8 and (labels == data_labels.UNKNOWN).any()
            return np.where(labels < 0, np.int8(number), labels)

        for module in (experiment, hidden):
            monkeypatch.setattr(module, "read_labels", other)

    return put


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"method": "iat", "head": "linear", "iat.rule": "matched"},
        tiny.FROZEN | RECOMMENDED | {"linear.C": "auto"},
    ],
)
def test_what_stands_at_an_unknown_entry_changes_no_byte_of_a_model(partial, tmp_path, renamed, changes):
    bank = tiny.features(partial, tmp_path / "features") if "features.views" in changes else None

    def trained(name):
        experiment = tiny.open_experiment(partial, tmp_path / "split.parquet", SHORT | changes, bank=bank)
        return models(run_all(experiment, tmp_path / name, [stage for stage in SOURCES if experiment.settings.trains(stage)]))

    before = trained("before")
    renamed(-77)
    assert trained("after") == before and len(before) >= 2


@pytest.mark.parametrize("method", [name for name, facts in METHODS.items() if not facts.partial])
def test_a_method_that_needs_every_label_says_so(tiny_experiment, partial, method):
    with pytest.raises(SettingsError, match=f"method: found '{method}'.*labelled in part; choose one of .*dicap"):
        tiny_experiment({"method": method, "head": METHODS[method].head}, folder=partial)
