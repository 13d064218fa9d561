"""`python -m killed STAGE MOMENT`: a stage that kills its own process at a call of one of this project's functions."""

import os
import signal
import sys

import calls

from stages.cli import main

stage, moment = sys.argv[1], int(sys.argv[2])
with calls.counted(lambda n: os.kill(os.getpid(), signal.SIGKILL) if n == moment else None):
    main([stage])
