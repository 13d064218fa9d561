"""Engines run jobs, on this machine or on several: `here`, `slurm`, one file each.

An engine has `check(job)`, which raises DataError where no node has what the job asks for, and `run(jobs)`, which yields
(name, None) as a job succeeds and (name, why, perhaps "") as one fails; `outlives` says whether its jobs go on when the process
that submitted them ends. A job whose node or process dies is tried again; one that ends with an exit code other than 0 is not.
"""
