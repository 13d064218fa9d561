"""Published models: what is read is what was written, equal models are equal bytes, and nothing foreign gets in."""

import itertools
import json
import pickle

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from dicap.calibration.evidence import Evidence
from dicap.errors import DataError, SettingsError
from dicap.files.artifacts import read_roles, write_split
from dicap.models import SCHEMA, check_same_problem, checksum, load_model, read_metadata, save_model
from dicap.settings.catalogue import RAW
from dicap.training.loops.warmup import initial_network

CLASSES = ["blue", "green", "red"]


@pytest.fixture
def model(trained, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes((trained / "train" / "model.safetensors").read_bytes())
    return path


def test_a_model_brings_all_that_is_needed_to_use_it(trained, tiny_experiment):
    experiment = tiny_experiment({"data_root": "/somewhere/private"})
    saved = load_model(trained / "train" / "model.safetensors")
    assert (saved.classes, saved.which, saved.stage) == (CLASSES, "raw", "train")
    assert saved.settings.data_root == RAW
    assert saved.settings.train == experiment.settings.train and saved.settings.image_size == tiny.SIZE
    assert not saved.network.training


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["linear", "ml_decoder"]), st.integers(0, 999), st.integers(0, 5), st.booleans(), st.text(max_size=9))
def test_tensors_and_evidence_return_with_their_bits(tiny_set, trained, tmp_path_factory, head, seed, images, at_rank, note):
    rng, experiment = np.random.default_rng(seed), tiny.open_experiment(tiny_set, trained / "split.parquet", {"head": head})
    p = rng.random((images, 3)).astype(np.float32)
    prior, y = np.array([0.1, np.nan, np.nextafter(1, 0)]), rng.integers(-1, 2, (images, 3), np.int8)
    evidence = Evidence(*rng.random((2, 3)), prior, note, p, y, p**2 if at_rank else None)
    path, facts = tmp_path_factory.mktemp("evidence") / "x", {"classes": CLASSES, "stage": "t", "which": "raw"}
    network = initial_network(experiment)
    save_model(network, path, settings=experiment.settings, evidence=evidence, **facts)
    saved = load_model(path)
    before, after = network.state_dict(), saved.network.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    for name, value in vars(evidence).items():
        found = getattr(saved.evidence, name)
        if isinstance(value, np.ndarray):
            assert found.dtype == value.dtype and found.tobytes() == value.tobytes(), name
        else:
            assert found == value, name


def rewritten(*, evidence=3, **changes):
    """The model again with other weights, evidence of so many classes, and entries of its metadata changed; None: left out."""

    def rewrite(path):
        kept = {key: value[..., :evidence].contiguous() for key, value in load_file(path).items() if key.startswith("evidence.")}
        kept = kept if evidence else {}
        tensors = {"x": torch.zeros(2), **kept}
        left_out = {"checksum", *(key for key, value in changes.items() if value is None)}
        metadata = {key: value for key, value in (read_metadata(path) | changes).items() if key not in left_out}
        metadata["checksum"] = checksum(metadata, tensors)
        save_file(tensors, path, metadata={"dicap": json.dumps(metadata)})

    return rewrite


FAULTS = {
    "missing": (lambda path: path.unlink(), "no such file"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "model.safetensors"),
    "text": (lambda path: path.write_bytes(b"<html>not found</html>"), "damaged or not a model"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-100]), "damaged"),
    "a pickle": (lambda path: path.write_bytes(pickle.dumps({"x": 1})), "damaged"),
    "of another project": (lambda path: save_file({"x": torch.zeros(2)}, path), "not a model of this project"),
    "with metadata that is no mapping": (lambda path: save_file({}, path, metadata={"dicap": "[1]"}), "schema None"),
    "of 0.1.0": (rewritten(schema=5), f"schema 5, this version reads {SCHEMA}; train it again"),
    "of a newer schema": (rewritten(schema=SCHEMA + 1), "of a newer version"),
    "of other settings": (rewritten(settings={"ratio": 1}), "another version"),
    "of another network": (rewritten(), "do not fit"),
    "without its classes": (rewritten(classes=None), "classes: input should be a valid list"),
    "without its evidence": (rewritten(evidence=0), "evidence is not readable"),
    "with evidence of other classes": (rewritten(evidence=2), "evidence is not readable"),
}


@pytest.mark.promise(
    "A model that is damaged or of another schema is never used; one line names the file", section="Kills, full disks and damage"
)
@pytest.mark.parametrize(("fault", "words"), FAULTS.values(), ids=FAULTS.keys())
def test_a_file_that_is_no_whole_model_is_one_clear_line(model, fault, words):
    fault(model)
    with pytest.raises(DataError) as caught:
        load_model(model)
    message = str(caught.value)
    assert words in message and str(model) in message and "\n" not in message


@pytest.mark.promise("Any flipped bit of a model is noticed", section="Kills, full disks and damage")
@settings(max_examples=25, deadline=None)
@given(place=st.integers(0, 10**9), bit=st.integers(0, 7))
@pytest.mark.parametrize("part", ["header", "tensors"])
def test_any_flipped_bit_is_noticed(trained, tmp_path_factory, part, place, bit):
    content = bytearray((trained / "train" / "model.safetensors").read_bytes())
    header = 8 + int.from_bytes(content[:8], "little")
    start, stop = (0, header) if part == "header" else (header, len(content))
    content[start + place % (stop - start)] ^= 1 << bit
    path = tmp_path_factory.mktemp("flipped") / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)


def test_a_stage_continues_only_from_its_own_problem(model, tiny_experiment):
    s, split = tiny.settings(), tiny_experiment().split_mark
    check_same_problem(model, s, CLASSES, split)
    check_same_problem(model, tiny.settings({"optimiser.lr": 0.5}), CLASSES, split)
    with pytest.raises(DataError, match="other classes"):
        check_same_problem(model, s, CLASSES[::-1], split)
    others = {"method": "mld", "backbone": "test_vit", "head": "linear", "image_size": 48, "dataset": "digits", "seed": 2}
    for key, value in (others | {"ratio": 0.6}).items():
        with pytest.raises(SettingsError, match=f"{key}: found '?{value}'?, but .* was trained with"):
            check_same_problem(model, tiny.settings({key: value}), CLASSES, split)
    rewritten(settings=[])(model)
    with pytest.raises(DataError, match="safetensors: settings: "):
        check_same_problem(model, s, CLASSES, split)


@pytest.mark.promise(
    "A stage that is run by hand refuses a model that may have learnt labels that are now held out",
    section="Hidden and held-out labels",
)
@pytest.mark.parametrize("which", ["dicap published", "dicap recommended", "mld published", "cap published"])
def test_a_stage_continues_from_another_split_only_where_no_label_that_is_held_out_was_learnt(tiny_set, tmp_path, which):
    """Roles exchanged by hand, two at a time."""
    method, protocol = which.split()
    changes = {"method": method, "head": "linear", "linear.solver": "convex", "protocol": protocol}
    changes |= {"warmup.trainable": "head"} if protocol == "recommended" else {}
    split, model = tmp_path / "split.parquet", tmp_path / "model.safetensors"
    e = tiny.open_experiment(tiny_set, split, changes)
    facts = {"settings": e.settings, "classes": CLASSES, "stage": "warmup", "which": "raw"}
    save_model(e.method.build_network(pretrained=False), model, split=e.split_mark, **facts)
    check_same_problem(model, e.settings, CLASSES, tiny.open_experiment(tiny_set, split, changes).split_mark)
    ids, roles = e.store.ids, read_roles(split)
    for one, other in itertools.combinations(("sup", "est", "unlabeled"), 2):
        exchanged, (i, k) = roles.copy(), (np.flatnonzero(roles == role)[0] for role in (one, other))
        exchanged[i], exchanged[k] = roles[k], roles[i]
        write_split(ids, exchanged, split)
        mark = tiny.open_experiment(tiny_set, split, changes).split_mark
        if {one, other} == {"sup", "est"} and which != "dicap published":
            check_same_problem(model, e.settings, CLASSES, mark)
            continue
        with pytest.raises(DataError, match="may have learnt labels that are held out now"):
            check_same_problem(model, e.settings, CLASSES, mark)
