# `make help` lists the targets. Set up once, then everything is incremental: a changed pyproject.toml, constraints.txt or kernel
# installs again.

PYTHON ?= python3
# The build of torch. Decided at the first `make setup`; see "torch for your machine" in docs/install.md.
TORCH ?= torch==2.13.0
# More arguments for serve, demo, bench and test: make serve ARGS="--port 9000".
ARGS ?=

CPP := $(wildcard $(addprefix src/radixserve/kernels/csrc/,*.h *.cpp */*.h */*.cpp))

VENV := .venv
BIN := $(VENV)/bin
# Threads of torch that spin while they wait cost more than they gain when cores are shared.
export OMP_WAIT_POLICY ?= PASSIVE

.DEFAULT_GOAL := help
.PHONY: help setup serve demo test test-all conformance format check bench docs

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/installed ## Make .venv and install RadixServe and its tools in it.

serve: $(VENV)/serving ## Download the default model and serve it on 127.0.0.1:8000.
	$(BIN)/radixserve serve $(ARGS)

demo: $(VENV)/serving ## Show what the cache is worth, in under two minutes.
	$(BIN)/radixserve demo --quick $(ARGS)

test: $(VENV)/model ## Run the tests, without those marked slow.
	$(BIN)/python -m pytest -m "not slow" $(ARGS)

test-all: $(VENV)/model ## Run all tests, the slow ones too.
	$(BIN)/python -m pytest $(ARGS)

conformance: $(VENV)/model $(VENV)/lm-eval .venv-conformance/installed ## Run client libraries, evaluation and benchmark tools against a server.
	$(BIN)/python -m pytest -p tests.conformance.counts tests/conformance tests/server/test_openapi.py $(ARGS)

format: setup ## Write the format of Python and C++.
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CPP)

check: setup ## Lint, check the format, the types and the direction of imports.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run -Werror $(CPP)
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## Measure the radix tree.
	$(BIN)/python -m benchmarks.tree $(ARGS)

docs: setup ## Write the parts of docs/ that are made from the code.
	$(BIN)/python -m docs.generate
	$(BIN)/python docs/assets/walkthrough.py

$(VENV)/torch:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'RadixServe needs Python 3.11 or newer: set PYTHON')"
	@echo "making $(VENV), and installing torch in it: some 200 MB (2 GB with CUDA)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet "pip>=25.1"
	@$(BIN)/pip install --quiet "$(TORCH)"
	@touch $@

# What serving needs.
$(VENV)/serving: $(VENV)/torch pyproject.toml constraints.txt CMakeLists.txt $(CPP)
	@echo "building the kernels, and installing RadixServe: about a minute"
	@$(BIN)/pip install --quiet -c constraints.txt -e .
	@touch $@

# What most changes need.
$(VENV)/installed: $(VENV)/serving
	@echo "installing what checks and tests need"
	@$(BIN)/pip install --quiet -c constraints.txt --group dev
	@touch $@

# What all tests need: clients of the API, Ray, a driver of browsers.
$(VENV)/tested: $(VENV)/installed
	@echo "installing the clients, Ray and the browser's driver that tests use"
	@$(BIN)/pip install --quiet -c constraints.txt --group test
	@touch $@

# Tests never download: the default model is downloaded once, beforehand.
$(VENV)/model: $(VENV)/tested
	$(BIN)/radixserve pull
	@touch $@

# What can't be installed is said here, and its tests are skipped.
$(VENV)/lm-eval: $(VENV)/tested
	@echo "installing lm-evaluation-harness"
	@if $(BIN)/pip install --quiet -c constraints.txt "lm-eval[hf,api]"; then touch $@; \
	else echo "lm-evaluation-harness can't be installed: its test is skipped"; fi

.venv-conformance/installed: tests/conformance/tools.txt tests/conformance/tools-constraints.txt
	@echo "guidellm and aiperf get an environment of their own, .venv-conformance: 2 GB, some minutes"
	@if $(PYTHON) -m venv .venv-conformance && .venv-conformance/bin/pip install --quiet "$(TORCH)" \
	  && .venv-conformance/bin/pip install --quiet -r tests/conformance/tools.txt -c tests/conformance/tools-constraints.txt; then touch $@; \
	else echo "guidellm and aiperf can't be installed: their tests are skipped"; fi
