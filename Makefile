# make run      a platform and a first sandbox        make run ONCE=1   the same, then stop
# make test     every quick suite                     make check        style, types, imports, sizes, docs
# make setup    everything but starting it            make help         all targets
#
# STATE_DIR=/some/dir keeps the platform's state elsewhere; PORT=7777 listens elsewhere.
SHELL := /bin/bash
.DEFAULT_GOAL := help

STATE_DIR ?= /var/lib/sandboxer
PORT ?= 7777
VENV ?= .venv
ONCE ?=
PYTEST_ARGS ?=
# Of `make test-languages`: only these, by name; nothing is written then.
LANGUAGES ?=
# Of `make test-tiers`: images of some languages each, built if they are missing (images/README.md).
TIERS ?= shells
# Test processes side by side; what measures time is tested alone all the same.
WORKERS ?= $(shell n=$$(nproc); echo $$((n > 4 ? 4 : n)))
# Of `make test` and `make test-unit`: with a third worker two cores are still idle a third of the time, waiting for walls, chains and servers.
GATE_WORKERS ?= $(shell echo $$(($(WORKERS) < 4 ? $(WORKERS) + 1 : $(WORKERS))))
# Rooms whose tests mostly need nothing but Python; `--unit` leaves out the rest of them.
UNIT = $(addprefix tests/,kernel store observe money identity accounts payments sandboxes work sdk \
	contract/test_scripted.py languages/test_table.py images/test_recipe.py images/test_mirrors.py)
# Said at once: a run that fills the disk fails in a hundred places, half an hour later.
need-disk = @has=$$(($$(df --output=avail -k /var/tmp | tail -1) / 1048576)); [ $$has -ge $(1) ] \
	|| { echo "/var/tmp needs $(1) GB for the storage pools of these tests, and has $$has GB" >&2; exit 1; }
export VENV
# Tests start some hundred servers and commands: each would compile all of the source again.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
# Tests lay storage pools of gigabytes: not into /tmp, which is memory on many hosts.
PYTEST = TMPDIR=/var/tmp $(BIN)/pytest
IMAGE = $(STATE_DIR)/images/base/image.json
rerun-failed = TMPDIR=/var/tmp scripts/rerun-failed $$? $(BIN)/pytest

help: ## What can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: system venv guest image ## Everything needed to run; the CLI is then at .venv/bin/sandboxer
	@echo "Ready: $(BIN)/sandboxer"

run: setup ## Start the platform and try a first sandbox (ONCE=1: then stop)
	@exec $(BIN)/sandboxer up --demo $(if $(ONCE),--once) --state-dir $(STATE_DIR) --port $(PORT)

# No test of this ring needs schemathesis, whose plugin takes a second of every test process to load.
test-unit: dev ## Without root, another program or a whole platform, in about a minute: the ring to live in
	TMPDIR=/var/tmp $(BIN)/pytest $(UNIT) --unit -p no:schemathesis -m "not slow and not long and not alone" -n $(GATE_WORKERS) -q $(PYTEST_ARGS)

test: test-setup ## Every quick suite: unit, store on both databases, guest, contract, walls, HTTP, crash
	$(call need-disk,12)
	$(PYTEST) --cache-clear -m "not slow and not long and not alone" -n $(GATE_WORKERS) $(PYTEST_ARGS) || $(rerun-failed)
	$(PYTEST) --cache-clear -m "not slow and not long and alone" $(PYTEST_ARGS) $$(grep -rl 'mark\.alone' tests --include='test_*.py') || $(rerun-failed)

test-slow: test-setup runsc image-languages ## The suites that take minutes, and every language and shell
	$(call need-disk,20)
	$(PYTEST) -m slow --timeout 1800 -n $(WORKERS) $(PYTEST_ARGS)

test-faults: test-setup ## Faults under the platform: databases, disks, clocks, descriptors; minutes
	$(PYTEST) tests/faults --timeout 1800 -n $(WORKERS) $(PYTEST_ARGS)

test-long: test-setup ## For a free hour or two: every route a hundred times, a kill at every step, a million files
	$(call need-disk,30)
	$(PYTEST) -m long --timeout 3600 -n $(WORKERS) $(PYTEST_ARGS)

test-languages: test-setup image-languages ## The five programs of every language and shell; writes docs/reference/languages.md
	TMPDIR=/var/tmp $(BIN)/python -m tests.languages $(LANGUAGES)

test-tiers: test-setup ## The five programs of every language of some images (TIERS="shells jvm"; all: every tier)
	SANDBOXER_TEST_TIERS="$(TIERS)" $(PYTEST) tests/languages/test_tiers.py -m slow --timeout 3600 $(PYTEST_ARGS)

# Their repositories, checked out: of the SDKs, and of the code interpreter.
SUITE ?=
test-e2b: test-setup ## E2B's own live suites against a platform of ours (SUITE="/path/E2B /path/code-interpreter"); writes build/e2b.json
	$(call need-disk,20)
	TMPDIR=/var/tmp $(BIN)/python -m tests.e2b.suites $(SUITE)

test-unsandbox: test-setup ## The checks of unsandbox's public clients, unchanged, against a platform of ours (SUITE=/path/to/a/clone: from there); writes build/unsandbox.json
	$(call need-disk,5)
	TMPDIR=/var/tmp $(BIN)/python -m tests.unsandbox.suites $(SUITE)

smoke-remote: dev ## A small tour of the platform at SANDBOXER_URL: made, used, asked for its ways, removed; seconds
	@PATH="$(abspath $(BIN)):$$PATH" scripts/smoke-remote

e2b-matrix: test-setup ## Every feature through several versions of E2B's clients; writes the table of docs/guides/e2b.md
	TMPDIR=/var/tmp $(BIN)/python -m tests.e2b.matrix

check: dev ## ruff, mypy, import rules, sizes, documents and what is generated
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/architecture

freeze: dev ## Take over what the API answers now as what tests/release holds it to
	TMPDIR=/var/tmp $(BIN)/python -m tests.release

bench: test-setup ## Figures against bwrap and podman on this machine
	@scripts/system-packages bench
	$(BIN)/sandboxer bench --json

generate: dev ## Write what comes from the table of operations again: calls of every client, tools, the reference
	$(BIN)/python scripts/generate-calls
	$(BIN)/python scripts/generate-tools
	$(BIN)/python scripts/generate-sync
	$(BIN)/python scripts/generate-clients
	$(BIN)/python scripts/generate-docs

wheel: venv guest ## dist/sandboxer-*.whl: client, and with its extra `server` the platform; no compiler needed to install it
	@scripts/build-wheel

docs: dev ## Write the generated references again
	$(BIN)/python scripts/generate-docs

site: dev ## The documents as a site that can be searched, in build/site; a broken link ends it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean
	@echo "build/site/index.html"

release: dev guest ## Wheel, sdist, bill of materials, checksums, signed: dist/release (KEY=~/.ssh/release; see CONTRIBUTING.md)
	@scripts/release "$(KEY)"

sbom: dev ## What a platform is made of, as CycloneDX JSON in build/sbom.json, from requirements.lock
	@mkdir -p build
	$(BIN)/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-reproducible --of JSON -o build/sbom.json

clean: ## Remove what was built here; images and state stay
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	$(MAKE) --no-print-directory -C guest clean

# -- parts of setup; each is quick when there is nothing to do ---------------------------------------------

# Tests find the base image where a platform keeps it by default; they make their own state elsewhere.
test-setup: override STATE_DIR := /var/lib/sandboxer
test-setup: test-system dev guest image image-builder node-modules

system:
	@scripts/system-packages run

test-system:
	@scripts/system-packages $(if $(CI),ci,test)

venv: system
	@scripts/make-venv run

dev: $(if $(filter test test-slow test-faults test-long test-languages test-tiers test-e2b test-unsandbox e2b-matrix bench,$(MAKECMDGOALS)),test-system,system)
	@scripts/make-venv dev

guest:
	@scripts/build-guest

# A minute and a half: only for the slow ring. Quick tests of gVisor run where it was built, and are skipped elsewhere.
runsc:
	@scripts/build-runsc >/dev/null || echo "Without it the tests of gVisor are skipped." >&2

image: guest
	@[ -f $(IMAGE) ] || scripts/build-image base $(STATE_DIR)

image-builder: image
	@[ -f $(STATE_DIR)/images/builder/image.json ] || scripts/build-image builder $(STATE_DIR)

# What the TypeScript client is tried with, from npm by its lock; its tests say what is missing without it.
node-modules: | test-system
	@scripts/make-node-modules || echo "Without it the tests of the TypeScript client fail." >&2

# Six gigabytes and half an hour: only when it is asked for.
image-languages: override STATE_DIR := /var/lib/sandboxer
image-languages: image
	@[ -f $(STATE_DIR)/images/languages/image.json ] || scripts/build-image languages $(STATE_DIR)

# The order in which the parts must go.
guest: | system
image: | venv

.NOTPARALLEL:
.PHONY: help setup run test test-unit test-slow test-faults test-long test-languages test-tiers test-e2b test-unsandbox e2b-matrix check freeze bench generate wheel docs site sbom release clean test-setup system test-system venv dev guest runsc image image-builder image-languages node-modules
