# `make repro`: environment, default run, report. `make test`: everything CI checks.
# `make faults`: kills, signals, full disks, damaged files and bad inputs, and whether anything is lost (minutes). Sweeps on Slurm with
# them, where its programs are on the path or in the folder that SLURM_ROOT names (tests/lab/clusters.py). And what is too
# slow for `make test` (the marker `slow`): the commands of the README and the tutorial, every benchmark at toy size, the paper's sweep on
# a made-up archive, a sweep through the whole pipeline, an installed project, DVC's queue and linked photographs, half
# precision of every method, heads on features of every method, scores by every way with a pretrained network, a trainer and DVC
# that are stopped and killed, every setting of a second method. And each property (hypothesis) of 100 drawn examples, not of 25.
# `make mutation`: which changes of the mathematics no test notices, by mutmut (settings in pyproject.toml); `mutmut browse` shows them.
# It replaced a script of our own that tried fewer changes (109, not 175, of dicap/losses.py) in about the same time per change.
# `make coverage`: lines that no test runs.
# Another Python or another place for the environment: make repro PYTHON=python3.12 VENV=/some/place

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready
TOOLS = $(VENV)/.tools
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: repro env tools test faults mutation coverage lint pytest

repro: env
	PATH="$(abspath $(BIN)):$$PATH" dvc repro
	@echo
	@PATH="$(abspath $(BIN)):$$PATH" dvc metrics show
	@echo "Report: $(CURDIR)/artifacts/report/index.html"
	@echo "Commands need the environment on the path: source $(BIN)/activate"

env: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; name one with make PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[lite,export]'
	touch $(READY)

# What only tests and their tools need.
tools: $(TOOLS)

$(TOOLS): $(READY)
	$(INSTALL) '.[dev]'
	touch $(TOOLS)

# Together: most of the time of `lint` is pyright's, on one core.
test: tools
	$(MAKE) --no-print-directory --jobs 2 lint pytest

pytest: tools
	PATH="$(abspath $(BIN)):$$PATH" OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

faults: tools
	PATH="$(abspath $(BIN)):$$PATH" OMP_NUM_THREADS=1 FAULTS=long $(BIN)/python -m pytest -q tests/faults tests/stages/test_bad_inputs.py
	PATH="$(abspath $(BIN)):$$PATH" OMP_NUM_THREADS=1 FAULTS=long $(BIN)/python -m pytest -q -m 'slow or hypothesis' --ignore tests/faults

mutation: tools
	$(INSTALL) '.[mutation]'
	OMP_NUM_THREADS=1 $(BIN)/python -m mutmut run --max-children 2
	$(BIN)/python -m mutmut results

coverage: tools
	PATH="$(abspath $(BIN)):$$PATH" OMP_NUM_THREADS=1 $(BIN)/python -m coverage run --source dicap -m pytest -q
	$(BIN)/python -m coverage report --skip-covered --fail-under 90

lint: tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pyright --pythonpath $(BIN)/python
