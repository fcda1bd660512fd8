# The commands of this repository. Each does its own set-up; `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON := .venv/bin/python
STAMP := .venv/.headgate-setup
PROJECTS := $(wildcard pyproject.toml protos/pyproject.toml services/*/pyproject.toml tests/simulation/pyproject.toml)

# Tests start hundreds of processes, and half of a start is compiling modules where bytecode may not be kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup check test protos sdks lock bench simulate chaos demo demo-cluster clean

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): requirements.lock $(PROJECTS) tools/setup.sh
	@tools/setup.sh

setup: $(STAMP) ## Make .venv what requirements.lock says
	@echo "setup: .venv is what requirements.lock says"

check: $(STAMP) ## Format, lint, types, contracts, protos and unit tests: about a minute
	@$(PYTHON) tools/check.py

test: $(STAMP) ## Everything: check, all tests with real servers, 2,000 simulation seeds
	@$(PYTHON) tools/run_tests.py

protos: $(STAMP) ## Generate protos/gen/python from protos/headgate
	@$(PYTHON) tools/generate_protos.py

sdks: $(STAMP) ## Generate and build the Go and TypeScript clients in examples/ (needs Go and Node)
	@$(PYTHON) tools/sdks.py

lock: ## Resolve requirements.lock again from the pyproject.toml files
	@tools/lock.sh

bench: $(STAMP) ## Run one benchmark: make bench NAME=create_query (no NAME lists them)
	@$(PYTHON) tools/bench.py $(NAME)

simulate: $(STAMP) ## Run the simulator: SEEDS=n runs n seeds, SEED=n replays one, neither runs until a failure
	@$(PYTHON) tools/simulate.py $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--seed $(SEED))

chaos: $(STAMP) ## Break real servers under load: the log for HOURS=n (1), then queries with KILLS=n (50) of each process; SEED=n, WHAT=log or queries, WORKLOADS=files,topics,kafka,edges
	@$(if $(filter queries,$(WHAT)),,$(PYTHON) -m tests.chaos.campaign)
	@$(if $(filter log,$(WHAT)),,$(PYTHON) -m tests.chaos.queries)

demo: $(STAMP) ## From nothing to a running query that survives the loss of an agent and of the engine, in about two minutes
	@$(PYTHON) tools/demo.py

demo-cluster: $(STAMP) ## The same on real servers: Kafka, PostgreSQL, MinIO and a Spark standalone cluster
	@PYTHONPATH=. $(PYTHON) tools/demo_cluster.py

clean: ## Remove the virtual environment, caches and build output
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@rm -rf examples/go/{bin,gen} examples/typescript/{dist,node_modules,src/gen}
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "removed .venv, caches and build output (the cache folder outside the tree is kept)"
