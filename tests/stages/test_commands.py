"""Every command on the tiny set: what it prints, what it writes, and one line with the right exit code when it cannot."""

import csv
import functools
import importlib
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import tiny

from dicap.errors import Stopped
from dicap.settings.methods import METHODS

STAGES = ("convert", "split", "warmup", "pseudo-label", "train", "finetune", "evaluate")
OUT = {"convert": "data/converted", "pseudo-label": "artifacts/pseudo_label"}


def out_of(stage):
    return Path(OUT.get(stage, f"artifacts/{stage}"))


def test_the_stages_leave_what_the_contract_says(finished):
    for name in ("warmup", "train", "finetune"):
        assert (finished / "artifacts" / name / "model.safetensors").exists()
        assert len(pd.read_csv(finished / "artifacts" / name / "history.csv")) in (2, 3)
    for kind in ("weights", "thresholds", "pseudo_labels"):
        assert sorted(pd.read_parquet(finished / "artifacts" / "train" / kind)["epoch"].astype(int).unique()) == [0, 1]
        assert pd.read_parquet(finished / "artifacts" / "pseudo_label" / kind)["epoch"].astype(int).unique().tolist() == [0]
    assert json.loads((finished / "artifacts/evaluate/metrics.json").read_text())["n_test"] == 12
    roles = pd.read_parquet(finished / "artifacts/split/split.parquet")["role"].value_counts().to_dict()
    assert roles == {"sup": 9, "est": 5, "unlabeled": 22, "test": 12}
    assert not list((finished / ".dicap" / "state").iterdir())


def test_the_commands_equal_the_functions(finished, trained):
    for stage in ("warmup", "train", "finetune"):
        for name in ("history.csv", *(path.name for path in (trained / stage).glob("*.safetensors"))):
            assert tiny.content(finished / "artifacts" / stage)[name] == tiny.content(trained / stage)[name]


@pytest.mark.parametrize("stage", STAGES)
def test_a_second_run_gives_the_same_bytes(project, stage):
    before = tiny.content(out_of(stage))
    project.done(stage)
    assert tiny.content(out_of(stage)) == before


def test_labelled_only_methods_pass_the_model_on(project):
    project.set({"method": "mld"})
    project.done("warmup")
    assert "MLD makes none" in project.done("pseudo-label")
    for source, stage in (("warmup", "train"), ("train", "finetune")):
        assert "passed on" in project.done(stage)
        before, after = tiny.content(Path("artifacts") / source), tiny.content(Path("artifacts") / stage)
        assert {n: c for n, c in before.items() if n != "history.csv"} == {n: c for n, c in after.items() if n != "history.csv"}
        assert len(pd.read_csv(f"artifacts/{stage}/history.csv")) == 0
    result = json.loads(project.done("evaluate") and Path("artifacts/evaluate/metrics.json").read_text())
    assert (result["method"], result["stage"]) == ("mld", "warmup")


def test_finetuning_can_be_left_out(project):
    project.set({"finetune.enabled": False})
    assert "passed on" in project.done("finetune")
    assert (
        tiny.content(Path("artifacts/finetune"))["model.safetensors"]
        == tiny.content(Path("artifacts/train"))["model.safetensors"]
    )


def test_evaluate_takes_another_model_and_writes_nothing_then(project):
    shutil.rmtree("artifacts/evaluate")
    shutil.rmtree("artifacts/finetune")
    out = project.done("evaluate", "--model", "artifacts/train/model.safetensors")
    assert out.startswith("mAP ") and "raw model of train" in out and "ema counterpart" in out
    assert not Path("artifacts/evaluate").exists()
    project.done("evaluate", "--model", "artifacts/train/model.safetensors", "--out", "elsewhere")
    assert json.loads(Path("elsewhere/metrics.json").read_text())["stage"] == "train"


def test_an_artifact_is_drawn_in_the_terminal(project):
    for kind in ("weights", "thresholds", "pseudo_labels"):
        assert project.done("histogram", f"artifacts/train/{kind}")


def test_config_and_methods_print(project):
    assert "train.epochs" in project.done("config") and "DiCaP" in project.done("methods")
    assert json.loads(project.done("config", "--json"))["train.epochs"]["value"] == 2


@pytest.mark.parametrize("command", ["resolve", "config"])
def test_what_is_hardly_meant_is_told(project, command, monkeypatch):
    code, _, errors = project.run(command)
    (line,) = errors.splitlines()  # all of them in one
    assert code == 0 and line.startswith("Warning: params.yaml: drml.rounds 4, drml.iterations 3, ")
    assert "the method is dicap" in line
    project.set({key: None for key in tiny.CHANGES if key.startswith(("drml.", "pclp."))})
    assert "Warning" not in project.run(command)[2]
    project.set({"warmup.trainable": "head", "train.trainable": "head"})
    code, _, errors = project.run(command)
    (line,) = errors.splitlines()
    assert code == 0 and line.startswith("Warning: params.yaml: backbone_weights: found 'random'")
    monkeypatch.setenv("DICAP_PROJECT", str(project.folder))  # in a sweep a grid's settings are for all of its cells
    assert "Warning" not in project.run(command)[2]


def test_the_list_of_methods_fits_a_terminal_and_leaves_nothing_out(project):
    lines = project.done("methods").splitlines()
    assert max(map(len, lines)) <= 100
    words = " ".join(lines).split()
    for facts in METHODS.values():
        assert all(
            set(text.split()) <= set(words) for text in (facts.title, facts.loss, facts.rule, facts.source, facts.confidence)
        )


def test_bars_count_epochs_as_the_artifacts_do_and_say_what_is_left(project):
    _, _, said = project.run("train", "--fresh")
    with open(project.folder / "artifacts" / "train" / "history.csv") as file:
        epochs = [row["epoch"] for row in csv.DictReader(file)]
    bars = [line for line in said.splitlines() if line.startswith("train, epoch")]
    told = list(dict.fromkeys(re.findall(r"^train, epoch (\d+) of 0 to 1", "\n".join(bars), re.MULTILINE)))
    assert told == epochs == ["0", "1"]
    assert "left" in bars[-1].partition(":")[0] and "left" not in bars[0].partition(":")[0]


# -- mistakes ---------------------------------------------------------------------------------------------------------

SETTINGS = {
    "unknown dataset": ("split", {"dataset": "tabel"}, ["dataset", "'tabel'", "table"]),
    "unknown method": ("warmup", {"method": "dicapp"}, ["method", "'dicapp'", "dicap"]),
    "unknown head": ("warmup", {"head": "mldecoder"}, ["head", "'mldecoder'", "ml_decoder"]),
    "unknown backbone": ("warmup", {"backbone": "resnet_50"}, ["backbone", "'resnet_50'", "resnet50"]),
    "unknown weights": ("warmup", {"backbone_weights": "no/such.pth"}, ["backbone_weights", "no/such.pth"]),
    "a stride the backbone has not": ("warmup", {"backbone": "test_vit", "network.stride": 8}, ["backbone", "network.stride 8"]),
    "ratio 0": ("split", {"ratio": 0}, ["ratio", "0"]),
    "ratio 1.5": ("split", {"ratio": 1.5}, ["ratio", "1.5"]),
    "ratio that leaves both empty": ("split", {"ratio": 0.01}, ["ratio", "0.01", "28 training images", "0 for D_sup"]),
    "ratio that leaves D_sup empty": ("split", {"ratio": 0.04}, ["ratio", "0.04", "0 for D_sup and 1 for D_est"]),
    "est_fraction that leaves D_sup empty": ("split", {"split.est_fraction": 0.99}, ["split.est_fraction 0.99", "0 for D_sup"]),
    "another image size": ("warmup", {"image_size": 48}, ["image_size", "48", "32"]),
    "another backbone than the model's": ("train", {"backbone": "test_vit"}, ["backbone", "'test_vit'", "'test_resnet'"]),
    "another head than the model's": ("finetune", {"head": "linear"}, ["head", "'linear'", "'ml_decoder'"]),
    "no data_root": ("convert", {"data_root": None}, ["data_root", "null"]),
    "text for a number": ("train", {"train.epochs": "ten"}, ["train.epochs", "'ten'"]),
    "a key that is none": ("train", {"train.epoch": 3}, ["train.epoch", "train.epochs"]),
}


@pytest.mark.parametrize(("stage", "changes", "words"), SETTINGS.values(), ids=SETTINGS.keys())
def test_a_wrong_setting_is_one_line_and_exit_code_2(project, stage, changes, words):
    before = tiny.content(Path())
    project.set(changes)
    code, line = project.refused(stage)
    assert code == 2 and all(word in line for word in words), line
    unchanged_but_for(before, "params.yaml")


def unchanged_but_for(before, *names):
    """Nothing already produced is lost, nothing half is left."""
    after = {name: content for name, content in tiny.content(Path()).items() if not name.startswith(".dicap/")}
    ignored = {name for name in before.keys() | after.keys() if name.startswith((".dicap/", *names))}
    assert {n: c for n, c in after.items() if n not in ignored} == {n: c for n, c in before.items() if n not in ignored}


def flip(path, place=-100):
    content = bytearray(Path(path).read_bytes())
    content[place] ^= 1
    Path(path).write_bytes(content)


def cut(path):
    Path(path).write_bytes(Path(path).read_bytes()[:-20])


def other_split(project):
    frame = pd.read_parquet("artifacts/split/split.parquet")
    frame["id"] = frame["id"].to_numpy()[::-1]
    frame.to_parquet("artifacts/split/split.parquet")


def other_classes(project):
    meta = json.loads(Path("data/converted/meta.json").read_text())
    meta["classes"][0] = "azure"
    Path("data/converted/meta.json").write_text(json.dumps(meta))


def other_columns(project):
    pd.DataFrame({"name": ["a"], "role": ["sup"]}).to_parquet("artifacts/split/split.parquet")


def other_schema(project):
    meta = json.loads(Path("data/converted/meta.json").read_text())
    Path("data/converted/meta.json").write_text(json.dumps(meta | {"schema": 99}))


FILES = {
    "raw folder missing": ("convert", lambda p: p.set({"data_root": "/no/such/folder"}), ["/no/such/folder", "data_root"]),
    "set missing": ("split", lambda p: shutil.rmtree("data/converted"), ["data/converted", "convert"]),
    "set missing later": ("warmup", lambda p: shutil.rmtree("data/converted"), ["data/converted", "convert"]),
    "set of another schema": ("warmup", other_schema, ["meta.json", "99"]),
    "description damaged": ("warmup", lambda p: cut("data/converted/meta.json"), ["meta.json"]),
    "array truncated": ("warmup", lambda p: cut("data/converted/images.npy"), ["images.npy"]),
    "index damaged": ("split", lambda p: cut("data/converted/index.parquet"), ["index.parquet", "damaged"]),
    "index bit-flipped": ("warmup", lambda p: flip("data/converted/index.parquet", 40), ["index.parquet", "damaged"]),
    "split missing": ("warmup", lambda p: shutil.rmtree("artifacts/split"), ["split.parquet", "no such file", "dvc repro"]),
    "split damaged": ("train", lambda p: cut("artifacts/split/split.parquet"), ["split.parquet", "damaged"]),
    "split bit-flipped": ("train", lambda p: flip("artifacts/split/split.parquet", 40), ["split.parquet", "damaged"]),
    "split of another set": ("finetune", other_split, ["split.parquet", "another data set"]),
    "split of other columns": ("evaluate", other_columns, ["split.parquet", "columns"]),
    "model missing": ("train", lambda p: shutil.rmtree("artifacts/warmup"), ["warmup/model.safetensors", "no such file"]),
    "model missing for the look": (
        "pseudo-label",
        lambda p: shutil.rmtree("artifacts/warmup"),
        ["model.safetensors", "no such file"],
    ),
    "model truncated": ("finetune", lambda p: cut("artifacts/train/model.safetensors"), ["model.safetensors", "damaged"]),
    "model bit-flipped": ("finetune", lambda p: flip("artifacts/train/model.safetensors"), ["model.safetensors", "damaged"]),
    "model of other classes": ("train", other_classes, ["model.safetensors", "classes"]),
    "model of other classes to evaluate": ("evaluate", other_classes, ["model.safetensors", "classes"]),
    "model damaged to evaluate": ("evaluate", lambda p: cut("artifacts/finetune/model.safetensors"), ["model.safetensors"]),
}


@pytest.mark.parametrize(("stage", "spoil", "words"), FILES.values(), ids=FILES.keys())
def test_a_wrong_file_is_one_line_and_exit_code_1(project, stage, spoil, words):
    spoil(project)
    before = tiny.content(Path())
    code, line = project.refused(stage)
    assert code == 1 and all(word in line for word in words), line
    unchanged_but_for(before)


@pytest.mark.parametrize(("module", "function"), [("shutil", "copy2"), ("os", "rename")])
def test_a_full_disk_while_publishing_is_one_line_and_loses_nothing(project, monkeypatch, module, function):
    before = tiny.content(Path("artifacts"))
    original = getattr(importlib.import_module(module), function)

    def full(source, target, *rest, **options):
        if "artifacts" in str(target):
            raise OSError(28, "No space left on device", str(source), None, str(target))
        return original(source, target, *rest, **options)

    project.set({"seed": 2})
    with monkeypatch.context() as patch:
        patch.setattr(f"{module}.{function}", full)
        if function == "copy2":  # copytree has it as a default argument
            patch.setattr("shutil.copytree", functools.partial(shutil.copytree, copy_function=full))
        code, line = project.refused("warmup")
    assert code == 1 and "No space left on device" in line and "artifacts" in line
    assert tiny.content(Path("artifacts")) == before
    code, _, lines = project.run("warmup")
    assert code == 0 and "resuming warmup at epoch 2" in lines  # nothing is trained twice


def test_several_mistakes_are_several_lines(project):
    project.set({"ratio": 2, "seed": -1})
    code, _, errors = project.run("train")
    assert code == 2 and sum(line.startswith("Error: ") for line in errors.splitlines()) == 2


def test_params_that_are_not_there(project):
    code, line = project.refused("train", "--params", "nowhere/params.yaml")
    assert code == 2 and "nowhere/params.yaml" in line


# -- processes ----------------------------------------------------------------------------------------------------------


def wait_for_a_state(project, process):
    until = time.monotonic() + 60
    while not list(project.folder.glob(".dicap/state/warmup-*/state.pt")):
        assert process.poll() is None and time.monotonic() < until, process.output()
        time.sleep(0.02)


def test_a_running_stage_refuses_a_second_stops_at_a_signal_and_continues(project):
    project.set({"warmup.epochs": 400, "warmup.eval_every": 400})
    first = tiny.stage(project.folder, "warmup")
    wait_for_a_state(project, first)
    code, line = project.refused("warmup")
    assert code == 1 and f"process {first.pid} is already running this warmup" in line
    first.send_signal(signal.SIGTERM)
    code, errors = first.wait(60)
    assert code == 75
    assert [line for line in errors.splitlines() if line.startswith(("Stopped: ", "Error: "))] == [
        line for line in errors.splitlines() if line.startswith("Stopped: warmup: state saved")
    ]
    assert "Traceback" not in errors
    again = tiny.stage(project.folder, "warmup")
    while "resuming warmup at epoch" not in again.output():
        assert again.poll() is None, "it did not resume"
        time.sleep(0.02)
    again.send_signal(signal.SIGINT)
    assert again.wait(60)[0] == 75


HEAVY = ("torch", "timm", "pandas", "numpy", "pyarrow", "PIL", "matplotlib", "sklearn")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"], ["train", "--help"], ["methods"]])
def test_help_is_instant_and_loads_nothing_heavy(
    arguments,
):
    script = (
        "import sys, time; begin = time.perf_counter()\n"
        "from stages.cli import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit as stop: code = stop.code\n"
        f"heavy = [m for m in {HEAVY} if m in sys.modules]\n"
        "print('RESULT', code, heavy, time.perf_counter() - begin)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tiny.ROOT, capture_output=True, text=True, check=True)
    code, rest = done.stdout.splitlines()[-1].removeprefix("RESULT ").split(" ", 1)
    heavy, seconds = rest.rsplit(" ", 1)
    assert (code, heavy) == ("0", "[]")
    assert float(seconds) < 2  # 0.1 s on an idle machine; a shared one may be busy


def test_every_listed_command_has_help_of_its_own():
    from click.testing import CliRunner

    from stages.cli import PIPELINE, TOOLS, USE, main

    listed = main.list_commands(None)  # type: ignore[arg-type]
    assert listed and set(listed) == {*PIPELINE, *USE, *TOOLS} and set(PIPELINE) <= set(listed)
    for name in listed:
        result = CliRunner().invoke(main, [name, "--help"])
        assert result.exit_code == 0 and f"main {name}" in result.output
    assert CliRunner().invoke(main, ["trian"]).exit_code == 2


def test_a_failure_tells_how_to_get_back_what_dvc_removed(project, monkeypatch):
    Path("dvc.lock").write_text(
        "schema: '2.0'\nstages:\n  split:\n    outs:\n    - {path: artifacts/split, md5: 0123456789.dir}\n", encoding="utf-8"
    )
    project.set({"ratio": 7.0})
    hint = "`dvc checkout artifacts/split` brings back what this stage made before."
    assert hint not in project.run("split")[2], "run by hand, nothing was removed"
    monkeypatch.setenv("DVC_STAGE", "split")
    assert hint not in project.run("split")[2], "it is still there"
    shutil.rmtree("artifacts/split")
    assert hint not in project.run("split")[2], "the cache has never seen it"
    Path(".dvc/cache/files/md5/01").mkdir(parents=True)
    Path(".dvc/cache/files/md5/01/23456789.dir").write_text("[]", encoding="utf-8")
    assert hint in project.run("split")[2]

    def stop(*_):
        raise Stopped("the state is saved")

    project.set({"ratio": 0.5})
    monkeypatch.setattr("dicap.data.split.read_meta", stop)
    code, _, errors = project.run("split")
    assert code == 75 and errors == "Stopped: the state is saved\n", "what was stopped is to go on, not back"
