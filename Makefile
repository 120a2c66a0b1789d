# Every target brings what it needs: a virtual environment with the pinned packages, and the test bed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Whatever the shell says: pytest rewrites the asserts of all tests, which takes ten seconds unless it may keep them.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-digits demo-mxjob check test testbed testbed-path histories races bench generate clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "trainmaster needs Python 3.11 or newer; say which with: make PYTHON=/path/to/python3.11 setup" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(STAMP) ## the virtual environment with the pinned packages

demo: $(STAMP) ## a real job on this machine: collectors and a learner balance a pole (reinforcement learning)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/trainmaster run examples/dijob-cartpole.yaml

demo-digits: $(STAMP) ## another one: a parameter server and three trainers learn to read digits
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/trainmaster run examples/aitrainingjob-digits.yaml

demo-mxjob: $(STAMP) ## the same by MXNet's rules: a scheduler, two servers and three workers
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/trainmaster run examples/mxjob-digits.yaml

check: $(STAMP) ## the quick gate: format, lint, layers, types, generated files, tests that need no cluster
	$(BIN)/ruff format --check -q .
	$(BIN)/ruff check -q .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 2 -m "not cluster and not long" -p tests.summary

testbed: $(STAMP) ## build the control plane of the test bed into the user's cache, once
	$(BIN)/python -m testbed.build

testbed-path: $(STAMP) ## print the folder of the test bed's binaries (make -s testbed-path)
	@$(BIN)/python -m testbed.build --path

test: check testbed ## everything: the quick gate, then the tests against a real control plane
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "cluster or long" -p tests.summary
	$(MAKE) histories N=1000

N ?= 10000
histories: $(STAMP) ## random histories of all kinds against the laws: make histories N=10000
	@[ "$(N)" -gt 0 ] 2>/dev/null || { echo "N is the number of histories, and $(N) is none; say: make histories N=10000" >&2; exit 1; }
	TRAINMASTER_HISTORIES=$(N) $(BIN)/python -m pytest -q -n 2 $(addprefix tests/laws/test_,laws.py elastic.py declared.py)

races: testbed ## the integration suite with every request and watch late by chance: finds tests that count on who is faster
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -p tests.races tests/integration

bench: testbed ## measure against the raw API and Kubernetes' own Job controller; prints a table, writes bench/result.json
	$(BIN)/python -m bench

generate: $(STAMP) ## write the generated files anew (deploy/crds.yaml, deploy/*-manager.yaml)
	$(BIN)/trainmaster crds > deploy/crds.yaml
	$(BIN)/python -m deploy.manager

clean: ## remove the virtual environment and caches (the test bed stays)
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
