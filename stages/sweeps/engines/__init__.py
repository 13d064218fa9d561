"""Engines run jobs, on this machine or on several: `here`, `ray`, `slurm`, one file each."""
