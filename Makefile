# Every target installs what it needs: a virtual environment with the pinned packages, and the test bed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Overrides the shell: pytest rewrites the asserts of all tests, which takes ten seconds unless it can cache them.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-digits demo-mxjob demo-tasks check test testbed testbed-path helm chart kueue contract histories races hostile fleet bench cluster cluster-down e2e image generate clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(STAMP): requirements/dev.txt requirements/di-engine.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "trainmaster needs Python 3.11 or newer; choose one with: make PYTHON=/path/to/python3.11 setup" >&2; exit 1; }
	@echo "setup: making the virtual environment $(VENV): 10 s"
	@$(PYTHON) -m venv $(VENV)
	@echo "setup: downloading and installing the pinned packages, 400 MB on disk: 1 to 4 minutes"
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	@echo "setup: installing DI-engine, for tests: up to 1 minute"
	@$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements/di-engine.txt
	@echo "setup: installing trainmaster itself: 10 s"
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
	@echo "setup: done; it is done again only when the pinned packages change"

.PHONY: install uninstall picture
install: ## install the command trainmaster for this user, with pipx or uv if there is one
	@PYTHON="$(PYTHON)" tools/install.sh install

uninstall: ## remove it again
	@PYTHON="$(PYTHON)" tools/install.sh uninstall

setup: $(STAMP) ## create the virtual environment with the pinned packages

demo: $(STAMP) ## run a DIJob on this machine: collectors and a learner train CartPole (reinforcement learning)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/trainmaster run examples/dijob-cartpole.yaml

demo-digits: $(STAMP) ## run an AITrainingJob: a parameter server and three trainers learn to read digits
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/trainmaster run examples/aitrainingjob-digits.yaml

demo-mxjob: $(STAMP) ## run an MXJob for the same: a scheduler, two servers and three workers
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/trainmaster run examples/mxjob-digits.yaml

demo-tasks: $(STAMP) ## run a DIJob v2alpha1: learner, evaluator and collectors find each other by rank and train CartPole
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/trainmaster run examples/dijob-tasks.yaml

check: $(STAMP) ## format, lint, layers, types, generated files, tests that need no cluster
	$(BIN)/ruff format --check -q .
	$(BIN)/ruff check -q .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 2 -m "not cluster and not long and not helm and not kueue and not e2e" -p tests.summary

testbed: $(STAMP) ## build the control plane of the test bed into the user's cache, once
	$(BIN)/python -m testbed.build

testbed-path: $(STAMP) ## print the folder of the test bed's binaries (make -s testbed-path)
	@$(BIN)/python -m testbed.build --path

chart: testbed ## build Helm if it is not there, and run the tests of the chart: template, install, upgrade, rollback, uninstall
	$(BIN)/python -m pytest -q -n 0 -m helm tests/deploy

helm: $(STAMP) ## build Helm into the user's cache, once, and print its path: for the tests of the chart
	@$(BIN)/python -m testbed.helm

kueue: testbed ## build Kueue if it is not there, and run the tests of jobs in its queues
	$(BIN)/python -m testbed.kueue
	$(BIN)/python -m pytest -q -n 0 -m kueue tests/kueue

test: check testbed ## make check, then the tests against a real control plane and 1000 histories
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "cluster or long" -p tests.summary
	$(MAKE) histories N=1000

contract: testbed ## run the tests with real clients (DI-engine, kubeflow-training, MXNet, PyTorch, …), each in an environment of its own
	$(BIN)/python -m tests.contract

N ?= 10000
histories: $(STAMP) ## run random histories of all kinds against the laws: make histories N=10000
	@[ "$(N)" -gt 0 ] 2>/dev/null || { echo "N is the number of histories, and $(N) is not a positive number; run: make histories N=10000" >&2; exit 1; }
	TRAINMASTER_HISTORIES=$(N) $(BIN)/python -m pytest -q -n 2 $(addprefix tests/laws/test_,laws.py elastic.py declared.py)

races: testbed ## run the integration tests with random delays: finds tests that depend on timing
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -p tests.races tests/integration

hostile: testbed ## attack a whole installation for five minutes; prints times and memory
	TRAINMASTER_HOSTILE_SECONDS=300 TRAINMASTER_HOSTILE_JOBS=20 $(BIN)/python -m pytest -q -n 0 --timeout 1200 tests/hostile/test_all_at_once.py

fleet: testbed ## run 250 jobs of every kind in ten minutes while the leading operator is killed each minute; prints totals and times
	TRAINMASTER_FLEET_SECONDS=600 TRAINMASTER_FLEET_JOBS=250 TRAINMASTER_FLEET_KILLS=10 $(BIN)/python -m pytest -q -n 0 --timeout 1800 tests/fleet

bench: testbed ## compare with a plain API client and Kubernetes' Job controller; prints a table, writes bench/result.json
	$(BIN)/python -m bench

cluster: testbed ## start a real cluster of three nodes on this machine (kubelet, containerd, CoreDNS); needs root
	$(BIN)/python -m testbed.cluster up

cluster-down: $(STAMP) ## end it and remove everything of it
	$(BIN)/python -m testbed.cluster down

e2e: testbed ## install on such a cluster, run every kind, and break nodes, network and API; needs root; writes docs/reliability.md
	$(BIN)/python -m pytest -q -n 0 -m e2e tests/deploy/test_oci.py tests/e2e

image: $(STAMP) ## build the image of the Dockerfile without docker into dist/: make image [BASE=rootfs.tar]
	$(BIN)/python -m deploy.image $(if $(BASE),--base $(BASE))

generate: $(STAMP) ## write the generated files (deploy/crds.yaml, deploy/*-manager.yaml, docs/reference, …)
	$(BIN)/trainmaster crds > deploy/crds.yaml
	$(BIN)/python -m deploy.manager
	$(BIN)/python -m deploy.helm
	$(BIN)/python -m deploy.kustomize
	$(BIN)/python -m deploy.monitoring
	$(BIN)/python -m reference

picture: $(STAMP) ## record docs/terminal.svg, the picture of the README, from a real run
	$(BIN)/python -m tools.picture

clean: ## remove the virtual environment and caches (the test bed stays)
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
