"""Starting what a training stage imports: in a child of the fork server, against a process of its own.

    python benchmarks/starts.py [--commands 8]

The command imports `stages.support.training`, torch and timm with it, and ends. With the server (`stages.sweeps.forkserver`),
as a cell of a sweep has one, a small process asks it for a child; its own start, once for all commands of a cell, is
counted with them.

Writes starts.json among the results and ends with `starts ratio=R target=2`, R: seconds of --commands processes of their own over
those of a server and as many children, the median of the rounds. Exits 1 below it.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import Parser, finish, median_ratio, take_turns
from made_up import ROOT
from stages.sweeps.forkserver import fork_server

TARGET = 2.0
COMMAND = "stages.support.training"
ASK = f"import sys; from stages import forkserver; sys.exit(forkserver.run({COMMAND!r}, []) != 0)"  # None: it did not run


def main() -> int:
    """Run by turns, compare, write."""
    given = Parser(__doc__, "starts", commands=1)
    given.add_argument("--commands", type=int, default=8, help="commands of a cell that load the libraries")
    options = given.options()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    each: dict[str, list[float]] = {"own": [], "forked": []}

    def command(which: str, *arguments: str, variables: dict[str, str]) -> None:
        begin = time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment | variables, check=True)
        each[which].append(time.perf_counter() - begin)

    def own() -> None:
        for _ in range(options.commands):
            command("own", "-m", COMMAND, variables={})

    def forked() -> None:
        with fork_server(environment) as variables:
            for _ in range(options.commands):
                command("forked", "-c", ASK, variables=variables)

    seconds = take_turns({"own": own, "forked": forked}, options.rounds)
    median = {which: round(statistics.median(times), 3) for which, times in each.items()}
    whole = {which: round(statistics.median(times), 3) for which, times in seconds.items()}
    for which in each:
        print(f"{which:7} {median[which]:.2f} s a command, {whole[which]:.1f} s for {options.commands}")
    found = {"commands": options.commands, "seconds_each": median, "seconds": whole}
    return finish("starts", found, median_ratio(seconds["own"], seconds["forked"]), TARGET, options)


if __name__ == "__main__":
    sys.exit(main())
