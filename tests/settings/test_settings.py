"""Settings: layers, types, every mistake at once, and the numbers of the published protocol."""

import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from tiny import ROOT, nested

from dicap.errors import SettingsError
from dicap.settings import flatten, resolve
from dicap.settings import load_settings as load
from dicap.settings.catalogue import DATASETS, OWN_HEAD
from dicap.settings.fields import ORIGINS
from dicap.settings.methods import METHODS
from dicap.settings.resolve import known_fields


@pytest.fixture
def write(tmp_path):
    """Write params.yaml with some keys changed, or as a text; the configs are the project's."""

    def write(changes=None, text=None):
        path = tmp_path / "params.yaml"
        if text is not None:
            path.write_text(text)
            return path
        values = YAML(typ="safe", pure=True).load((ROOT / "params.yaml").read_text())
        with open(path, "w") as handle:
            YAML().dump(nested(values, changes or {}), handle)
        return path

    return write


def errors(path):
    with pytest.raises(SettingsError) as caught:
        load(path)
    return str(caught.value).splitlines()


def test_a_value_comes_from_the_first_file_that_has_one(write):
    resolved = resolve(write({"train.epochs": 3}))
    assert resolved.settings.train.epochs == 3
    assert resolved.origins["train.epochs"] == "params.yaml"
    assert resolved.origins["backbone"] == "configs/pictograms.yaml"
    assert resolved.origins["calibration.bins"] == "params.yaml"
    assert resolved.origins["calibration.target"] == ORIGINS["published"]
    assert resolved.origins["calibration.anchor"] == ORIGINS["assumed"]
    assert resolved.origins["network.tokens"] == ORIGINS["own"]
    assert resolved.origins["head"] == "published head of dicap"


def test_a_protocol_stands_before_the_data_set_and_the_published_values(write):
    recommended = YAML(typ="safe", pure=True).load((ROOT / "configs/recommended.yaml").read_text())
    changed = dict(flatten(recommended))
    own = {"dataset": "digits"}
    resolved = resolve(write(own | {"protocol": "recommended"}))
    published = resolve(write(own)).settings.model_dump()
    values = dict(flatten(resolved.settings.model_dump()))
    assert set(changed) == {key for key, origin in resolved.origins.items() if origin == "configs/recommended.yaml"}
    differing = {key for key, value in flatten(published) if value != values[key]}
    assert differing == {"protocol", *changed}, "a key that repeats the published value is no recommendation"
    assert load(write({"protocol": "recommended", "linear.neighbours": 3})).linear.neighbours == 3
    photographs = load(write({"dataset": "table", "data_root": "/photographs", "protocol": "recommended"})).model_dump()
    assert changed.items() <= dict(flatten(photographs)).items(), "it is for them"


@pytest.mark.promise("A protocol's head does not change the method, and the remedy in a message works", section="Numbers")
@pytest.mark.parametrize("method", METHODS)
def test_a_protocol_s_head_makes_no_other_method_of_one_and_remedies_work(write, method):
    """What a message asks for is set until there is none left: in a few turns a method runs under the protocol."""
    changes = {"dataset": "digits", "protocol": "recommended", "method": method}
    for _ in range(4):
        try:
            settings = load(write(changes))
            break
        except SettingsError as error:
            changes |= {"pclp.prior": "none"} if "set pclp.prior to none" in str(error) else {}
            changes |= {"features.views": 1} if "set it to 1 or more" in str(error) else {}
            changes |= dict.fromkeys(("warmup.trainable", "train.trainable"), "all") if "trainable to all" in str(error) else {}
    own = METHODS[method].head == OWN_HEAD or method == "mld"
    assert settings.head == (METHODS[method].head if own else "linear")


def test_features_of_a_network_that_nothing_has_trained_are_warned_of(write):
    def warnings(**changes):
        return resolve(write(changes)).warnings

    (line,) = warnings(dataset="digits", protocol="recommended")
    assert line.startswith("configs/digits.yaml: backbone_weights: found 'random' with warmup.trainable head (configs/recomm")
    assert len(warnings(backbone_weights="random")) == 1
    assert not warnings() and not warnings(protocol="recommended") and not warnings(dataset="digits")
    whole = {"method": "d2l", "warmup.trainable": "all", "train.trainable": "all"}
    (line,) = warnings(**whole)
    assert line.startswith("configs/pictograms.yaml: linear.features: found 'root' with warmup.trainable all (params.yaml)")
    assert not warnings(**whole, **{"linear.features": "plain"})


@pytest.mark.parametrize("name", [*DATASETS, "recommended"])
def test_a_file_of_configs_holds_what_it_changes_alone_and_is_read_by_its_name(write, name):
    values = dict(flatten(YAML(typ="safe", pure=True).load((ROOT / "configs" / f"{name}.yaml").read_text())))
    usual = {key: field.default for key, field in known_fields()}
    assert values and not [key for key, value in values.items() if value in (None, {}, usual.get(key))]
    changes = {"dataset": name, "data_root": "/somewhere"} if name in DATASETS else {"protocol": name}
    assert values.items() <= dict(flatten(load(write(changes)).model_dump())).items()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol": "recomended"}, ["protocol", "'recomended'", "did you mean recommended?"]),
        ({"method": "cap", "head": "own"}, ["head", "'own'", "allowed are"]),
        ({"ratio": "0.1"}, ["ratio", "'0.1'", "valid number"]),
        ({"calibration.anchor": "center"}, ["calibration.anchor", "'center'", "did you mean centre?"]),
        ({"optimiser.lr": float("nan")}, ["optimiser.lr", "nan"]),
        ({"pclp.adversary_size": 100}, ["pclp.adversary_size", "100", "64, 128, 256"]),
        ({"method": "pclp", "pclp.batch_size": 8, "pclp.batch_labelled": 8}, ["pclp.batch_labelled", "less than the 8 images"]),
        ({"dataset": ["digits"]}, ["dataset", "['digits']", "allowed are"]),
    ],
)
def test_one_line_names_key_value_and_remedy(write, changes, words):
    lines = errors(write(changes))
    assert any(all(word in line for word in words) for line in lines), lines
    assert all(line.startswith(("params.yaml: ", "configs/")) for line in lines)


@pytest.mark.parametrize(("before", "after"), [("dataset", "datset"), ("protocol", "protcol"), ("method", "metod")])
def test_a_misspelt_key_of_the_top_level_is_named(write, before, after):
    lines = errors(write(text=f"\n{write().read_text()}".replace(f"\n{before}:", f"\n{after}:")))
    assert f"params.yaml: {after} is not a setting; did you mean {before}?" in lines


def test_a_key_with_a_point_is_no_setting_without_a_word(write):
    lines = errors(write(text=write().read_text() + "warmup.epochs: three\n"))
    assert lines == ["params.yaml: warmup.epochs is not a key here; write `epochs:` below `warmup:`"]


def test_all_mistakes_are_reported_at_once(write):
    assert len(errors(write({"ratio": 2, "seed": -1, "train.epoch": 1, "method": "x"}))) == 4


@pytest.mark.parametrize("key", ["dataset", "protocol"])
def test_what_chooses_the_files_stands_in_params_alone(write, tmp_path, monkeypatch, key):
    """And the project's files are read for settings of another folder too, not the package's."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    (tmp_path / "variants").mkdir()
    path = Path("variants", write().rename(tmp_path / "variants" / "a.yaml").name)
    monkeypatch.chdir(tmp_path)
    with open("configs/pictograms.yaml", "a") as file:
        file.write(f"{key}: recommended\n")
    with pytest.raises(SettingsError, match=f"^configs/pictograms.yaml: {key}: is read from a.yaml alone; move it there$"):
        load(path)


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2\n", "5", "", "\x00", "a: 2026-13-45", "a: " + 1000 * "["])
def test_a_file_that_is_no_mapping_or_missing(write, tmp_path, text):
    (line,) = errors(write(text=text))
    assert "params.yaml" in line
    with pytest.raises(SettingsError, match="no such file"):
        load(tmp_path / "absent.yaml")
