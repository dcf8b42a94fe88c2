# `make demo` and `make test` set everything up by themselves; the second time they start at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-long mutants lint clean

demo: $(READY)
	$(BIN)/python examples/demo.py

# Two workers with one thread each: more threads than cores would wait for each other.
test: $(READY) lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test-long: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m long

# Hours the first time; it can be stopped, and goes on where it was.
mutants: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[mutants]'
	$(BIN)/python benchmarks/mutants.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/check_names.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,learn]'
	touch $@

clean:
	rm -rf $(VENV) demo mutants
