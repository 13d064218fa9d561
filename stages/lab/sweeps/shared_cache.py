"""DVC for cells that write to one cache at the same time: `python -m stages.lab.sweeps.shared_cache repro`.

DVC asks the disk for a reflink before it copies a file into the cache. Its reflink (dvc-objects 5.2) first empties the file that
already has the name, and removes it where the disk knows no reflinks: a file that another cell has just stored, and links to.
Without reflinks a copy takes the name when it is whole.
"""

import errno
import sys
from typing import NoReturn


def without_reflinks() -> None:
    """Let DVC, in this process, go on as on a disk without reflinks."""
    from dvc_objects.fs import system

    def reflink(source: str, target: str) -> NoReturn:
        raise OSError(errno.ENOTSUP, "not in a cell", target)

    system.reflink = reflink


if __name__ == "__main__":
    from dvc.cli import main

    without_reflinks()
    sys.exit(main(sys.argv[1:]))
