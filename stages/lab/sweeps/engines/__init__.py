"""Engines run jobs, on this machine or on several: `here`, `slurm`, one file each."""

from stages.lab.sweeps.engines.base import Engine


def open_engine(name: str, at_once: int | None) -> Engine:
    """The engine of a name.

    Args:
        at_once: so many jobs at a time; None: as many as its nodes hold, on this machine one.

    Raises:
        DataError: it cannot be reached from here.
    """
    if name == "slurm":
        from stages.lab.sweeps.engines.slurm import Slurm

        return Slurm(at_once)
    from stages.lab.sweeps.engines.here import Here

    return Here(at_once or 1)
