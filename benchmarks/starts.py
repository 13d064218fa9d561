"""Seconds of processor time from the start of a stage's process to the first line of its work, in two checkouts.

    python benchmarks/starts.py --before FOLDER [--rounds 3]

Both checkouts have run `dvc repro` on the default data set, so that every stage finds what it needs. A stage ends where its work
would begin, at the function named below.

Writes starts.json among the results; its last line is `starts ratio=R target=1.67`, R: the seconds of FOLDER over those of this
checkout, all stages added up. Exits 1 below it.
"""

import os
import subprocess
import sys
from pathlib import Path

from common import Parser, finish

ROOT = Path(__file__).parents[1]
TARGET = 1.67  # at most 60 % of the seconds before
WORK = {
    "resolve": "dicap.provenance.dependencies:relevant",
    "split": "dicap.data.split:split_roles",
    "warmup": "dicap.training.trainer:Trainer.begin_with",
    "pseudo-label": "dicap.training.experiment:Experiment.place",
    "train": "dicap.training.trainer:Trainer.begin_with",
    "finetune": "dicap.training.trainer:Trainer.begin_with",
    "evaluate": "dicap.evaluation.evaluate:score",
    "report": "dicap.report.page:build_report",
}
UNTIL = """
import importlib, os, sys, time
module, _, name = sys.argv[2].partition(":")
*owners, last = name.split(".")
owner = importlib.import_module(module)
for part in owners:
    owner = getattr(owner, part)
def end(*_, **__):
    print("SECONDS", time.process_time(), flush=True)
    os._exit(0)
setattr(owner, last, end)
from stages.cli import main
main([sys.argv[1]])
"""


def main() -> int:
    """Run by turns, compare, write."""
    given = Parser(__doc__, "starts", stages=["resolve"])
    given.add_argument("--before", type=Path, default=ROOT, help="another checkout, in which `dvc repro` has run")
    given.add_argument("--stages", nargs="+", default=list(WORK), choices=WORK)
    options = given.options()
    found: dict[str, dict[str, list[float]]] = {stage: {"before": [], "now": []} for stage in options.stages}
    for _ in range(options.rounds):
        for stage, work in ((stage, WORK[stage]) for stage in options.stages):
            for which, folder in (("before", options.before), ("now", ROOT)):
                done = subprocess.run(
                    [sys.executable, "-c", UNTIL, stage, work], cwd=folder, capture_output=True, text=True, check=True,
                    env={**os.environ, "PYTHONPATH": str(folder.resolve()), "OMP_NUM_THREADS": "1"},
                )  # fmt: skip
                found[stage][which].append(float(done.stdout.split("SECONDS ")[1]))
    # The least: what else the machine does only adds.
    seconds = {stage: {which: round(min(times), 2) for which, times in both.items()} for stage, both in found.items()}
    for stage, both in seconds.items():
        print(f"{stage:<13}{both['before']:>7.2f} s before, {both['now']:>6.2f} s now")
    total = {which: sum(both[which] for both in seconds.values()) for which in ("before", "now")}
    return finish("starts", {"seconds": seconds}, total["before"] / total["now"], TARGET, options)


if __name__ == "__main__":
    sys.exit(main())
