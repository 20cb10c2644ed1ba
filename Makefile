# Every target sets up what it needs: only Python ≥ 3.11 and make are assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench experiments figures clean

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "manyarms needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo,dev]'
	touch $@

demo: $(READY)  ## find the best of 62,208 neural-network configurations
	$(BIN)/python examples/demo.py

test: lint  ## everything that continuous integration runs
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --cov --cov-report=term -q

lint: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)  ## what the adaptive engine costs, as ratios
	$(BIN)/python benchmarks/engine.py

experiments: $(READY)  ## every system on one runner: docs/experiments (hours)
	$(BIN)/python benchmarks/experiments.py starvation everything tails growth thompson --jobs 2

figures: $(READY)  ## the pictures in docs/
	$(BIN)/python examples/figure1.py docs/figure1.png

clean:
	rm -rf $(VENV) .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache demo-output bench-output
