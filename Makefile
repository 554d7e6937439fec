# `make` lists the targets. Variables: PYTHON (which Python makes .venv), DEMO, BENCH, CAMPAIGN, PYTEST_FLAGS; pip reads
# its own from the environment, e.g. `make setup PIP_INDEX_URL=...`.
SHELL := bash
PYTHON ?= python3
DEMO ?= --model scripts/models/keyword_cnn.py --quick
BENCH ?=
MATRIX ?=
MUTANTS ?=
RELEASE ?=
FUZZ ?=
CAMPAIGN ?= --minutes 60 --seed 0 --jobs 2
PYTEST_FLAGS ?=

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -q -n logical --dist worksteal
# `make demo` needs less than the rest: it has an environment of its own, unless there is one with everything.
DEMO_VENV := $(if $(wildcard .venv/.setup-done),.venv,.venv-demo)
export PYTHON
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup check test test-all demo bench verify records test-matrix test-slow mutants campaign notebooks docs \
    docs-version release-check fuzz clean

help:  ## list the targets (default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

setup: .venv/.setup-done  ## install everything into .venv: 2 to 10 minutes and 6 GB the first time, nothing after that
	@:

.venv/.setup-done: EXTRAS := torch-audiomentations,dev
.venv/.setup-done .venv-demo/.setup-done: pyproject.toml constraints.txt scripts/set_up.sh
	@scripts/set_up.sh $(@D) $(EXTRAS)

check: setup  ## run ruff, mypy and the check of import layers
	@echo "check: ruff" && $(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check .
	@echo "check: mypy" && $(BIN)/mypy
	@echo "check: layers" && $(BIN)/lint-imports --no-logo

test: setup check  ## run check, then tests/unit and tests/contract, one process a core
	@$(PYTEST) tests/unit tests/contract $(PYTEST_FLAGS)

test-all: setup check  ## run check, then all tests: both must pass before a change is merged
	@$(PYTEST) -m "not slow and not ray" $(PYTEST_FLAGS)
	@$(BIN)/python -m pytest -q -m "ray and not slow" tests/integration

demo: $(DEMO_VENV)/.setup-done  ## run the advisor on the example model and the demo audio; needs no `make setup`
	@$(DEMO_VENV)/bin/audioaug advise $(DEMO)

verify: setup  ## check every op through every build against its contract; writes nothing
	@$(BIN)/python -m audioaug.verify

records: setup  ## run verify, keep its result in datasets/profiles/, and renew the generated tables of the READMEs
	@$(BIN)/python -m audioaug.verify --json datasets/profiles/verify_cpu.json
	@$(BIN)/python scripts/compact_records.py datasets/profiles/verify_cpu.json
	@$(BIN)/python scripts/count_gpu_work.py --json datasets/profiles/gpu_counts.json
	@$(BIN)/python scripts/update_readme.py

test-matrix: setup  ## test the built wheel with other versions of torch and Python; e.g. MATRIX="--short newest cpu"
	@$(BIN)/python scripts/test_matrix.py $(MATRIX)

bench: setup  ## time our engine beside the other libraries, about 5 minutes; e.g. BENCH="--device cuda --batch 128"
	@$(BIN)/python scripts/bench_engine.py $(BENCH)

test-slow: setup  ## run the tests that take minutes
	@$(PYTEST) -m slow $(PYTEST_FLAGS)

mutants: setup  ## plant faults one at a time and count those that the tests see, 10 minutes; e.g. MUTANTS=decide
	@$(BIN)/python scripts/mutants.py $(MUTANTS)

campaign: setup  ## make thousands of faults happen and judge how they end, an hour; e.g. CAMPAIGN="--minutes 5 --seed 1"
	@$(BIN)/python -m tests.campaign $(CAMPAIGN)

notebooks: setup  ## run every notebook and keep its output
	@set -e; for notebook in notebooks/*.ipynb; do [ -e "$$notebook" ] || continue; \
	    echo "notebook: $$notebook"; \
	    PYTHONWARNINGS="ignore:IProgress not found" $(BIN)/jupyter-execute --inplace "$$notebook"; done

# The variable silences a notice that the theme will be maintained until 2027-05-05 only; Zensical is to follow it.
docs: setup  ## build the documentation into build/site; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict
	@echo "docs: open build/site/index.html; for the search: $(BIN)/python -m http.server -d build/site"

docs-version: setup  ## commit the documentation to the branch gh-pages, in a folder for this version, as the latest
	@export PATH="$(CURDIR)/$(BIN):$$PATH" NO_MKDOCS_2_WARNING=1; \
	    mike --quiet deploy --update-aliases "$$(audioaug --version | awk '{print $$NF}')" latest && mike --quiet set-default latest

fuzz: setup  ## give everything that is read random inputs for an hour, guided by coverage; e.g. FUZZ="chain --minutes 5"
	@$(BIN)/python scripts/fuzz.py $(FUZZ)

release-check: setup  ## build what a release uploads, twice, and try it in empty environments; leaves it in dist
	@$(BIN)/python scripts/release_check.py $(RELEASE)

clean:  ## remove caches and build products (.venv stays)
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -not -path './.venv*/*' -prune -exec rm -rf {} +
