"""All benchmarks, one after the other: a table, and one JSON file with hardware and versions.

    python benchmarks/suite.py [--only step refresh ...]

Each runs in a separate process with its defaults. Writes benchmarks/results/suite.json and ends with
`suite ratio=R target=1`, R: the share of benchmarks that reached their targets. Exits 1 if one did not.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, Parser, finish

NAMES = (
    "allocation",
    "choices",
    "contrastive",
    "coverage",
    "features",
    "gpu_paper",
    "input",
    "known",
    "linear",
    "refresh",
    "rows",
    "step",
)
LAST = re.compile(r"^(\w+) ratio=(\S+) target=(\S+)$")


def run(name: str, smoke: bool) -> dict[str, float | str | bool]:
    """One benchmark: its ratio and target, whether it exited 0, and its minutes."""
    begin = time.perf_counter()
    script = Path(__file__).with_name(f"{name}.py")
    done = subprocess.run(
        [sys.executable, str(script), *(["--smoke"] if smoke else [])], capture_output=True, text=True, check=False
    )
    lines = done.stdout.strip().splitlines()
    found = LAST.match(lines[-1]) if lines else None
    row: dict[str, float | str | bool] = {"name": name, "reached": done.returncode == 0}
    row["minutes"] = round((time.perf_counter() - begin) / 60, 2)
    if found:
        return row | {"ratio": float(found[2]), "target": float(found[3])}
    return row | {"error": (done.stderr.strip().splitlines() or ["it said nothing"])[-1]}


def main() -> int:
    options = Parser(__doc__, "suite")
    options.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="only these")
    options = options.options()
    print(f"{'benchmark':14}{'ratio':>8}{'target':>8}  {'':6}{'minutes':>8}", flush=True)
    rows = []
    for name in options.only:
        row = run(name, options.smoke)
        rows.append(row)
        word = "ok" if row["reached"] else "below"
        print(f"{name:14}{row.get('ratio', '-'):>8}{row.get('target', '-'):>8}  {word:6}{row['minutes']:>8}", flush=True)
        if "error" in row:
            print(f"  {row['error']}")
    share = sum(bool(row["reached"]) for row in rows) / len(rows)
    return finish("suite", {"benchmarks": rows, "results": str(RESULTS.name)}, share, 1.0, options)


if __name__ == "__main__":
    sys.exit(main())
