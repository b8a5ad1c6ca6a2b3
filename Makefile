# Everything on a fresh machine with Python 3.11+ and make: `make demo`, `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
PIP     = $(BIN)/pip --disable-pip-version-check --quiet install --constraint constraints.txt

.PHONY: wheelhouse demo test coverage test-long test-deploy faults mutants picture docs lint install dev papers bench accuracy bench-vertical bench-synthetic clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[compiler,plots]'
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

# Which lines of the package the default suite runs, processes that it starts included.
coverage: $(VENV)/.dev
	$(BIN)/pytest --cov --cov-report=term:skip-covered

# A thousand kills, a million mutated messages, attacks of coalitions, statistical and scale runs, the mutants, and the
# property tests on new examples. Takes many minutes.
test-long: mutants
	$(BIN)/pytest -m long -o faulthandler_timeout=1800
	$(BIN)/pytest -m 'hypothesis and not long and not deploy' --hypothesis-profile=searching

# Relay, coordinator and sites as processes on loopback; the server comes with the development environment.
test-deploy: $(VENV)/.dev
	$(BIN)/pytest -m deploy -n 0 -o faulthandler_timeout=600

# Kill processes at any moment: 200 kills of each method, and 10 of each role over a relay; writes the table of
# docs/reliability.md. Takes an hour on two cores. FAULTS="--method auction --seed 7 --kills 20" takes less.
faults: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.faults.matrix --write docs/reliability.md $(FAULTS)

# Remove or weaken one rule at a time in a copy of the tree: a test beside the rule has to fail.
mutants: $(VENV)/.dev
	$(BIN)/python -m tools.mutants

# Build the documentation into docs/_build, without a network: pages, search and a reference that is made from the code.
# Warnings are errors.
$(VENV)/.docs: $(VENV)/.installed
	$(PIP) --editable '.[docs]'
	touch $@

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

# Collect wheels of Comity and of all that a deployment installs into wheelhouse/, with hashes and a bill of materials, for
# machines without a network (docs/installing.md). ARGS="-- --python-version 3.12 --platform manylinux_2_34_x86_64" collects
# for another machine.
wheelhouse: | $(BIN)/python
	$(BIN)/python -m tools.wheelhouse wheelhouse $(ARGS)

# Draw the packages, and the functions that a run calls, into docs/architecture.md.
picture: $(VENV)/.dev
	$(BIN)/python -m tools.picture
# Also draw the diagrams of methods, the plots of accuracy from the table of docs/accuracy.md, and write tables of keys.
	$(BIN)/python -m tools.diagrams
	$(BIN)/python -m tools.reference
	$(BIN)/python -m experiments.accuracy.pictures docs

# Compute every table and figure of the papers again, on one page (papers/papers.html). QUICK=1 takes fewer repeats and a
# quarter of an hour. NAME=softlabel-har computes one of them, NAME=list lists them. COMITY_DATA names the folder of the
# datasets. ARGS="--out plots" passes further options.
papers: $(VENV)/.installed
	$(BIN)/python -m experiments papers $(or $(NAME),all) $(if $(QUICK),--quick) $(ARGS)

# Measure Comity beside another tool: `make bench NAME=ledger`; without NAME, list the benches. The extra `bench` installs
# the other tools.
$(VENV)/.bench: $(VENV)/.installed
	$(PIP) --editable '.[bench]'
	touch $@

bench: $(VENV)/.bench
	$(BIN)/python -m experiments bench $(or $(NAME),list) $(ARGS)

# diffprivlib needs an older scikit-learn than Comity, so this bench has a separate environment. pip reports a conflict; the
# parts of Comity that the bench calls work. Adult is compared too if COMITY_DATA names its folder.
$(VENV)/diffprivlib/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PYTHON) -m venv $(VENV)/diffprivlib
	$(VENV)/diffprivlib/bin/pip --disable-pip-version-check --quiet install --constraint constraints.txt --editable '.[compiler,plots]'
	$(VENV)/diffprivlib/bin/pip --disable-pip-version-check --quiet install diffprivlib==0.6.6 scikit-learn==1.5.2
	touch $@

bench-vertical: $(VENV)/diffprivlib/.installed
	$(VENV)/diffprivlib/bin/python -m experiments bench vertical

# Write docs/accuracy.md with the column of diffprivlib, in the same environment. COMITY_DATA names the folder of the tables.
# Takes hours. Fails where a cell is below its constant without a warning of its plan.
accuracy: $(VENV)/diffprivlib/.installed
	OMP_NUM_THREADS=1 $(VENV)/diffprivlib/bin/python -m experiments papers generalisation --out docs
	$(VENV)/diffprivlib/bin/python -m experiments papers warnings

# Measure beside OpenDP's MST and AIM with the models of Private-PGM, in a separate environment. COMITY_DATA names the folder
# of Adult. These tools take minutes for each release.
$(VENV)/mbi/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PYTHON) -m venv $(VENV)/mbi
	$(VENV)/mbi/bin/pip --disable-pip-version-check --quiet install --constraint constraints.txt --editable '.[compiler,plots]' 'opendp[mbi]==0.16.0'
	touch $@

bench-synthetic: $(VENV)/mbi/.installed
	$(VENV)/mbi/bin/python -m experiments bench synthetic

clean:
	rm -rf $(VENV) demo-report .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
