# Everything on a fresh machine with Python 3.11+ and make: `make demo`, `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
PIP     = $(BIN)/pip --disable-pip-version-check --quiet install --constraint constraints.txt

.PHONY: demo test test-long test-deploy faults mutants picture lint install dev papers bench accuracy bench-vertical bench-synthetic clean

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

# A thousand kills, a million mutated messages, the attacks of coalitions, statistical and scale runs, the mutants, and
# the property tests on new examples:
# many minutes.
test-long: mutants
	$(BIN)/pytest -m long -o faulthandler_timeout=1800
	$(BIN)/pytest -m 'hypothesis and not long and not deploy' --hypothesis-profile=searching

# Relay, coordinator and sites as processes on loopback; the server comes with the development environment.
test-deploy: $(VENV)/.dev
	$(BIN)/pytest -m deploy -n 0 -o faulthandler_timeout=600

# Whoever is killed, whenever: 200 kills of each method, and 10 of each role over a relay; prints the table of
# docs/reliability.md. An hour on two cores. FAULTS="--method auction --seed 7 --kills 20" for less.
faults: $(VENV)/.dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.faults.matrix --write docs/reliability.md $(FAULTS)

# Every rule removed or weakened, one at a time, in a copy of the tree: a test beside it has to fail.
mutants: $(VENV)/.dev
	$(BIN)/python -m tools.mutants

# The rooms of the house and the way of a run through them, into docs/architecture.md.
picture: $(VENV)/.dev
	$(BIN)/python -m tools.picture

# A paper's table or figure: `make papers NAME=softlabel-har`; without NAME the list of them. COMITY_DATA names the folder
# of the datasets. ARGS="--quick --out plots" for what else the command takes.
papers: $(VENV)/.installed
	$(BIN)/python -m experiments papers $(or $(NAME),list) $(ARGS)

# Comity beside an anchor: `make bench NAME=ledger`; without NAME the list of them. The anchors are the extra `bench`.
$(VENV)/.bench: $(VENV)/.installed
	$(PIP) --editable '.[bench]'
	touch $@

bench: $(VENV)/.bench
	$(BIN)/python -m experiments bench $(or $(NAME),list) $(ARGS)

# diffprivlib needs an older scikit-learn than Comity does, so that the bench beside it has an environment of its own.
# pip says that they do not fit together; what the bench calls of Comity does. Adult is compared too where COMITY_DATA
# names its folder.
$(VENV)/diffprivlib/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PYTHON) -m venv $(VENV)/diffprivlib
	$(VENV)/diffprivlib/bin/pip --disable-pip-version-check --quiet install --constraint constraints.txt --editable .
	$(VENV)/diffprivlib/bin/pip --disable-pip-version-check --quiet install diffprivlib==0.6.6 scikit-learn==1.5.2
	touch $@

bench-vertical: $(VENV)/diffprivlib/.installed
	$(VENV)/diffprivlib/bin/python -m experiments bench vertical

# docs/accuracy.md with the column of diffprivlib, in the same environment. COMITY_DATA names the folder of the tables. Hours.
accuracy: $(VENV)/diffprivlib/.installed
	OMP_NUM_THREADS=1 $(VENV)/diffprivlib/bin/python -m experiments papers generalisation --out docs

# MST and AIM as OpenDP has them, with the models of Private-PGM, in an environment of their own. COMITY_DATA names the
# folder of Adult. The anchors take minutes for each release.
$(VENV)/mbi/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PYTHON) -m venv $(VENV)/mbi
	$(VENV)/mbi/bin/pip --disable-pip-version-check --quiet install --constraint constraints.txt --editable . 'opendp[mbi]==0.16.0'
	touch $@

bench-synthetic: $(VENV)/mbi/.installed
	$(VENV)/mbi/bin/python -m experiments bench synthetic

clean:
	rm -rf $(VENV) demo-report .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
