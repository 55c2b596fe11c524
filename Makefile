# Everything here builds .venv by itself, from nothing but python3 (3.11 or later) and the package registry.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := build/demo
# What running needs and nothing else: `make demo` must not fetch linters and test tools.
RUNTIME := build/runtime
# mkdocs-material, for the pages of docs/ as a site in build/site.
SITE := build/site-tools
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Hashes of every file a package offers, no addresses, and one answer for every platform.
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

.DEFAULT_GOAL := help
.PHONY: help install demo site test test-slow fuzz shellfuzz equal mutate torture lint format bench docs lock clean

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

install: $(STAMP) ## build .venv with the pinned packages and this one

define check-python
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Resile needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make PYTHON=/path/to/python3.12 install" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) can't make virtual environments (on Debian: apt-get install python3-venv)." >&2; exit 1; }
endef

# A virtual environment with the packages of one pinned file.
define venv-with
	$(PYTHON) -m venv --clear $(1)
	$(1)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r $(2)
endef

$(STAMP): requirements-dev.txt pyproject.toml
	$(check-python)
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --require-hashes -r requirements-dev.txt
	$(PIP) install --no-deps --no-build-isolation --no-index --editable .
	$(BIN)/python -m compileall -q src
	@touch $@

$(RUNTIME)/.installed: requirements.txt
	$(check-python)
	$(call venv-with,$(RUNTIME),requirements.txt)
	@echo "$(CURDIR)/src" > "$$($(RUNTIME)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/resile.pth"
	@touch $@

demo: $(RUNTIME)/.installed ## run a workflow that fails and gets back up, then look at it
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	RESILE_DB=$(DEMO)/resile.db $(RUNTIME)/bin/python -m resile run examples/recover.yaml
	RESILE_DB=$(DEMO)/resile.db $(RUNTIME)/bin/python -m resile explain 1

$(SITE)/.installed: requirements-site.txt
	$(check-python)
	$(call venv-with,$(SITE),requirements-site.txt)
	@touch $@

site: $(SITE)/.installed ## build the pages of docs/ as a site in build/site; a broken link fails it
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet --strict

# Three at a time on two processors, because tests wait for processes more than they compute.
test: $(STAMP) ## the fast suite
	$(BIN)/python -m pytest -n 3 -m "not slow" --durations=20

test-slow: $(STAMP) ## the suites that take minutes: kill -9 at random moments, full disks, large graphs
	$(BIN)/python -m pytest -m slow --durations=20

fuzz: $(STAMP) ## compile N mutated files of other systems: N=10000 SEED=1
	RESILE_FUZZ=$(or $(N),10000) RESILE_FUZZ_SEED=$(or $(SEED),0) $(BIN)/python -m pytest tests/dialects -k mutated_files

shellfuzz: $(STAMP) ## put hostile values into hundreds of commands, on every shell that is installed
	$(BIN)/python -m tests.languages.shell.fuzz

equal: $(STAMP) ## compile and run everything as an older version did: OLD=REVISION ARGS="--only 'examples/*' --no-run"
	$(BIN)/python -m tests.equal $(if $(OLD),--old $(OLD)) $(ARGS)

mutate: $(STAMP) ## change the source in small ways and count what the tests notice: ARGS="--sample 60 --only core"
	$(PIP) install --require-hashes -r requirements-mutate.txt
	$(BIN)/python -m tests.mutate $(ARGS)

torture: $(STAMP) ## kills, stops, full disks, power cuts and clock jumps at random: MINUTES=30 SEED=1 ROUND=7
	$(BIN)/python -m tests.torture --minutes $(or $(MINUTES),30) --seed $(or $(SEED),1) --round $(or $(ROUND),0)

lint: $(STAMP) ## ruff, its formatter, and mypy in strict mode
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy bench

format: $(STAMP) ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## measure against ninja, make, xargs and a plain loop; ARGS="--quick --only wide"
	$(BIN)/python -m bench $(ARGS)

docs: $(STAMP) ## write the pages of docs/ that are generated from the program
	$(BIN)/python docs/generate.py

lock: ## pin the requirements anew from pyproject.toml (needs uv)
	$(COMPILE) pyproject.toml --output-file requirements.txt
	$(COMPILE) pyproject.toml --extra dev --output-file requirements-dev.txt
	$(COMPILE) pyproject.toml --extra dev --extra mutate --output-file requirements-mutate.txt
	$(COMPILE) pyproject.toml --extra site --output-file requirements-site.txt

clean: ## remove what the other targets made
	rm -rf $(VENV) build bench.json .mypy_cache .ruff_cache .hypothesis
