"""Read by every Python below this path: `dvc` and `dicap-stage` go to a process that has the libraries loaded (tests/warm.py)."""

import os
import sys
from pathlib import Path

DVC = "import sys\nfrom dvc.cli import main\nsys.exit(main(sys.argv[1:]))\n"
WORDS = sys.orig_argv[1:]

if "WARM_SOCKET" in os.environ and WORDS:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    import warm

    if WORDS[:2] == ["-m", "dvc"]:
        warm.command(DVC, WORDS[1:])
    if Path(WORDS[0]).name == "dicap-stage":
        warm.command(warm.STAGE, WORDS)
    del sys.path[0]
