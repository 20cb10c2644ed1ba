# Every target sets up what it needs: only Python ≥ 3.11 and make are assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PLAIN := .venv-plain
PLAIN_READY := $(PLAIN)/.ready
QUICK := -m pytest -n 2 -q --hypothesis-profile quick -m "not slow and not postgres and not soak"
CASE ?= ask

.DEFAULT_GOAL := help
.PHONY: help demo quick plain test lint coverage bench profile figures experiments soak hooks clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml src/manyarms/_sweep.c
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "manyarms needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo,dev]'
	touch $@

$(PLAIN_READY): pyproject.toml
	$(PYTHON) -m venv $(PLAIN)
	$(PLAIN)/bin/python -m pip install --quiet --disable-pip-version-check --editable . hypothesis pandas pytest pytest-xdist
	touch $@

demo: $(READY)  ## find the best of 62,208 neural-network configurations
	$(BIN)/python examples/demo.py

quick: $(READY)  ## most tests, in less than a minute: without those marked slow, postgres or soak
	OPENBLAS_NUM_THREADS=1 $(BIN)/python $(QUICK)

plain: $(PLAIN_READY)  ## the same and the tutorial on a plain install, by NumPy alone, beside pandas without pyarrow
	OPENBLAS_NUM_THREADS=1 MANYARMS_NO_SWEEP=1 $(PLAIN)/bin/python $(QUICK) -rs
	OPENBLAS_NUM_THREADS=1 $(PLAIN)/bin/python -m pytest -q tests/cli/test_tutorial.py

test: lint plain  ## everything that continuous integration runs
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q

lint: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

coverage: $(READY)  ## all tests, and which lines they run; about twice as long
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --cov --cov-report=term -q

bench: $(READY)  ## what the engine costs, as ratios to exact GP-UCB and to version 0.1
	$(BIN)/python benchmarks/core.py

profile: $(READY)  ## where the time of a call goes: make profile CASE=ask|tell|choose
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/profiling.py $(CASE)

figures: $(READY)  ## the pictures in docs/
	$(BIN)/python examples/figure1.py docs/figure1.png
	$(BIN)/python examples/demo.py && cp demo-output/demo.png docs/demo.png

experiments: $(READY)  ## every system on one runner: docs/experiments (hours)
	$(BIN)/python benchmarks/experiments.py starvation coverage everything tails growth thompson words --jobs 2

soak: $(READY)  ## what must never happen to a study, thousands of times: docs/reliability.md (two hours)
	cd tests && for what in \
	    "kills --kills 10000 --where disk" "kills --kills 1000 --where postgresql" \
	    "interrupts --interrupts 2000 --processes 40" "interrupts --interrupts 200 --processes 8 --where postgresql" \
	    "writers --processes 64 --tells 1000" "writers --processes 16 --tells 200 --where postgresql" \
	    "budget --runs 1000" network "together --processes 2" "together --processes 8" "damage --cuts all --flips 100000" "forged --books 5000" disk "power --cuts 1000" files "calls --calls 1000000" "sandwich --seeds 1000" \
	    "edges --problems 1000" "drift disk" "drift tells" "shards --kills 200"; \
	do echo "soak.$$what"; $(abspath $(BIN))/python -m soak.$$what || exit 1; done
	$(BIN)/python benchmarks/study_tell.py

hooks: $(READY)  ## run style and types before every commit (needs pre-commit)
	pre-commit install

clean:  ## remove the virtual environment, caches and output
	rm -rf $(VENV) $(PLAIN) .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache demo-output bench-output build src/manyarms/_sweep*.so
