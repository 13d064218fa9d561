"""What acted in finished runs: their ledgers as JSON, for benchmarks/results/ledger/ (docs/results.md).

python benchmarks/ledger.py NAME=PROJECT ...: of each project (a folder with params.yaml and artifacts/) the values that its
params.yaml sets, and by stage the rows of history.csv with the weights and the gradients of every epoch, the thresholds as means
over the classes. No benchmark: nothing is compared.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import pandas as pd

from dicap.files import artifacts as files
from dicap.files.tables import read_parquet
from dicap.settings import flatten, read_yaml

COLUMNS = (
    *("epoch", "steps", "grad_sup", "grad_pseudo", "grad_con", "weight_pos", "weight_pos_sd", "weight_neg"),
    *("share_pos", "share_neg", "share_uncertain", "precision_pos", "precision_neg", "tau_pos", "tau_neg", "map_raw", "map_ema"),
)


def ledger(artifacts: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows of COLUMNS by stage, without what a row has not; of the warm-up those in which something was measured."""
    found = {}
    for stage in (stage for stage in ("warmup", "train") if (artifacts / stage / "history.csv").exists()):
        history = pd.read_csv(artifacts / stage / "history.csv")
        for epoch in files.epochs(artifacts / stage, "thresholds"):
            table = read_parquet(files.epoch_file(artifacts / stage, "thresholds", epoch)).to_pandas()
            history.loc[history["epoch"] == epoch, ["tau_pos", "tau_neg"]] = table[["tau_pos", "tau_neg"]].mean().to_numpy()
        rows = [{str(k): v for k, v in row.items() if v == v} for row in history.reindex(columns=[*COLUMNS]).to_dict("records")]
        found[stage] = [row for row in rows if stage == "train" or "grad_sup" in row or "map_raw" in row]
    return found


def main() -> None:
    """Write a file for each name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="NAME=PROJECT")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results") / "ledger")
    arguments = parser.parse_args()
    arguments.out.mkdir(exist_ok=True)
    for name, _, project in (run.partition("=") for run in arguments.runs):
        values = {key: value for key, value in flatten(read_yaml(Path(project) / "params.yaml")) if value is not None}
        text = json.dumps({"settings": values} | ledger(Path(project) / "artifacts"), indent=1)
        (arguments.out / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
