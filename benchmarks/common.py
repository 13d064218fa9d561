"""What the benchmarks share: taking turns, medians, the machine's description, the JSON file and the last line."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")


def take_turns(passes: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every pass in every round. They take turns, so that other work on the machine slows all of them alike."""
    found: dict[str, list[float]] = {name: [] for name in passes}
    for i in range(rounds):
        names = list(passes) if i % 2 == 0 else list(passes)[::-1]
        for name in names:
            begin = time.perf_counter()
            passes[name]()
            found[name].append(time.perf_counter() - begin)
    return found


def median_ratio(over: list[float], under: list[float]) -> float:
    """Median over the rounds of the ratio within a round: what slows a whole round cancels."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def paired(ours: list[float], theirs: list[float], digits: int = 3) -> dict[str, float]:
    """Mean difference, half of its 95 % t interval over the seeds, and the smallest one."""
    import numpy as np
    from scipy import stats

    d = np.array(ours) - np.array(theirs)
    half = float(stats.t.ppf(0.975, len(d) - 1) * d.std(ddof=1) / len(d) ** 0.5) if len(d) > 1 else float("nan")
    return {"mean": round(float(d.mean()), digits), "half": round(half, digits), "least": round(float(d.min()), digits)}


def gap_of_deciles(chance: Any, right: Any) -> float:
    """Mean |mean chance - share right| over the tenths of the decisions by their chance (n, C); NaN where nothing was decided."""
    import numpy as np

    known = ~np.isnan(chance)
    chance, right = chance[known], right[known]
    tenths = [part for part in np.array_split(np.argsort(chance, kind="stable"), 10) if len(part)]
    return float(np.mean([abs(chance[part].mean() - right[part].mean()) for part in tenths])) if tenths else 0.0


def machine() -> dict[str, Any]:
    """Hardware and versions."""
    import numpy as np
    import torch

    from dicap.machine.processes import cores

    found = {
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2),
        "processor": _processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    if torch.cuda.is_available():
        found |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    return found


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def run_apart(script: Path, *arguments: str) -> str:
    """The last line that `script` prints, run in a separate process."""
    done = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip().rpartition("\n")[2]


def highest_above(work: Callable[[], Any]) -> int:
    """Bytes of resident memory that `work` needed at its peak, on top of what the process held before (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is held now
    before = _resident("VmRSS")
    work()
    return _resident("VmHWM") - before


def _resident(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


class Parser(argparse.ArgumentParser):
    """A parser with the options that all benchmarks have. At toy size one round is run, and no result is overwritten.

    `toy`: values of the other options at toy size.
    """

    def __init__(self, text: str | None, name: str, **toy: Any) -> None:
        super().__init__(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
        self._toy = toy
        self.add_argument("--rounds", type=int, default=5, help="the median round counts")
        self.add_argument("--out", type=Path, default=RESULTS / f"{name}.json")
        self.add_argument("--smoke", action="store_true", help="toy size and one round, to see that it runs")

    def options(self) -> argparse.Namespace:
        """What the command line says; at toy size it says only where the result goes, by default where the system keeps
        temporary files."""
        smoke = "--smoke" in sys.argv[1:]
        if smoke:
            self.set_defaults(rounds=1, out=Path(tempfile.mkdtemp()) / "smoke.json", **self._toy)
        return self.parse_args()


def finish(
    name: str,
    result: dict[str, Any],
    ratio: float,
    target: float,
    options: argparse.Namespace,
    *,
    same: bool = True,
    quick: bool = True,
) -> int:
    """Write the JSON, print the last line; the exit code: 0 if the ratio reaches the target and the rest holds.

    Args:
        options: of the command line: where the JSON goes, and whether sizes are toys, of which no speed is asked.
        same: results equal those of the reference.
        quick: targets beside the ratio are reached (seconds, most often).
    """
    reached = same and quick and ratio >= target
    out = options.out
    result = {"name": name, "ratio": round(ratio, 3), "target": target, "reached": reached} | result
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result | {"machine": machine()}, indent=1) + "\n")
    print(f"{name} ratio={ratio:.3g} target={target:g}")
    return 0 if reached or (options.smoke and same) else 1
