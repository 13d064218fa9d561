"""`dicap-stage doctor`: is a converted data set sound, and does a step of the run fit on the GPU?"""

from pathlib import Path

import click

from dicap.machine.gpus import count_gpus
from dicap.settings import Settings
from stages.support.common import data_folder, load, params_option
from stages.support.terminal import finish, say, spoken


@click.command("doctor")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option(
    "--gpu-memory", type=click.FloatRange(0, min_open=True), metavar="GIB", help="Of the GPU to run on, if not this one's."
)
@click.option("--strict", is_flag=True, help="Exit 1 on warnings too.")
@params_option
def command(folder: Path | None, gpu_memory: float | None, strict: bool, params: Path) -> None:
    """Check the files of FOLDER, its test images for copies of training images, and whether a step of the settings fits the GPU.

    FOLDER is a converted set, such as data/converted; without it, that of the settings.
    """
    unfit = _too_much_for_gpu(load(params), folder, gpu_memory) if gpu_memory or count_gpus() != 0 else []
    folder = folder or data_folder(load(params))
    from dicap.data.doctor import examine
    from dicap.errors import DataError

    findings = examine(folder)
    findings.warnings += unfit
    counts = ", ".join(f"{count} {split}" for split, count in findings.counts.items() if count)
    say(f"{folder}: {counts}; {findings.rejected} rejected")
    if any(findings.unknown.values()):
        open_ = " and ".join(f"{count} of {split}" for split, count in findings.unknown.items() if count)
        say(f"labelled in part: of {open_} entries (image, class) nothing is known")
    for test_id, train_id in findings.duplicates[:20]:
        say(f"duplicate: test {test_id} = train {train_id}")
    for line in findings.warnings:
        say(f"warning: {line}")
    if findings.damage:
        raise DataError("\n".join([*findings.damage, f"{folder} is damaged; run `dicap-stage convert` again"]))
    if strict and findings.warnings:
        raise DataError(f"{folder}: {len(findings.warnings)} warnings with --strict")
    if spoken()["json"]:
        facts = {"folder": str(folder), "images": findings.counts, "rejected": findings.rejected, "unknown": findings.unknown}
        finish("doctor", facts | {"duplicates": findings.duplicates, "warnings": findings.warnings})
    say(f"{folder}: sound")


def _too_much_for_gpu(settings: Settings, folder: Path | None, memory: float | None) -> list[str]:
    """Say what a training step needs of a GPU's memory; a warning with the remedies where that is too much."""
    import torch

    from dicap.data.format import read_meta
    from dicap.machine.cost import GIB
    from dicap.training.memory import OWN, expected_peak

    if memory is None:
        if not torch.cuda.is_available():
            return []
        memory = torch.cuda.mem_get_info()[1] / GIB
    meta = read_meta(folder or data_folder(settings))
    annotated = meta["counts"]["train"] / (meta["counts"]["train"] + meta["counts"]["unlabeled"])
    amp = (torch.bfloat16, None)
    half, full = ((expected_peak(settings, len(meta["classes"]), annotated, a) + OWN) / GIB for a in amp)
    needs = f"GPU of {memory:.3g} GiB: a step needs about {half:.1f} in mixed precision, {full:.1f} with --amp off"
    if half > memory:
        remedy = "lower train.batch_size and warmup.batch_size, or train the head alone (warmup.trainable, train.trainable: head)"
        return [f"{needs}, which does not fit; {remedy}"]
    say(f"{needs}: {'fits' if full <= memory else 'fits in mixed precision alone'}")
    return []
