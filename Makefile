# Everything on a fresh machine with Python 3.11+ and make: `make demo`, `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
PIP     = $(BIN)/pip --disable-pip-version-check --quiet install --constraint constraints.txt

.PHONY: demo test test-long lint install dev clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(PIP) --editable '.[dev]'
	touch $@

install: $(VENV)/.installed
dev: $(VENV)/.dev

demo: $(VENV)/.installed
	$(BIN)/comity demo --out demo-report

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest

# Crash, scale and statistical runs that take many minutes.
test-long: $(VENV)/.dev
	$(BIN)/pytest -m long

clean:
	rm -rf $(VENV) demo-report .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
