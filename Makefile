# Each line is the command; without make, type what stands on the right.
# The first Python from 3.11 on that can make a virtual environment; PYTHON=... names another.
PYTHON ?= $(or $(firstword $(foreach each,python3 python3.14 python3.13 python3.12 python3.11,\
    $(shell $(each) -c 'import sys, ensurepip; sys.version_info >= (3, 11) and print("$(each)")' 2>/dev/null))),\
    $(error Python 3.11 or newer with venv is needed (Debian: apt install python3-venv)))
VENV   := .venv
BIN    := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
unexport PYTHONDONTWRITEBYTECODE     # rewriting and compiling the tests again costs each run seconds

.DEFAULT_GOAL := help
.PHONY: help install demo test check quick fix lint types layers fast unit sim nightly golden mutants e2e bench stubs reference docs lock contact images clean

help:                ## this list
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9]+):.*## /  make \1\t/' | expand -t 18

install: $(VENV)/.dev  ## everything that development needs, in .venv
$(VENV)/.user: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	pip install -q -U pip
	pip install -q -e .
	touch $@
$(VENV)/.dev: pyproject.toml $(VENV)/.user
	pip install -q -e . ./agent/train --group dev
	touch $@

demo: $(VENV)/.user  ## three workloads on a local cluster; needs no GPU and no Kubernetes
	lockstep demo

test: lint types layers  ## everything: lint, types, contracts, tests, and beside them e2e on a real Kubernetes
	$(MAKE) --no-print-directory -k -j2 -Onone unit e2e
check: lint types layers fast     ## before each commit: all but slow tests and e2e
fix: install         ## format, and mend what ruff can
	ruff check -q --fix . ; ruff format -q .
lint: install
	ruff check -q . && ruff format -q --check .
types: install
	mypy
layers: install
	@found=$$(lint-imports --no-cache) || { echo "$$found"; exit 1; }; echo "$$found" | grep Contracts
quick: install       ## the pure parts alone, in half a minute: names and layers, model, scheduler, controllers
	LOCKSTEP_FAST=1 pytest -q -m "not slow and not long and not nightly" -n auto --dist worksteal tests/architecture tests/protos \
	    tests/central/model tests/central/scheduler tests/central/controllers
fast: install        # unit and scenario tests, one simulated day
	LOCKSTEP_FAST=1 pytest -q -m "not e2e and not slow and not nightly" -n auto --dist worksteal
unit: install        ## unit, scenario and simulation tests, slow ones too; two for each core, as they wait for processes half of the time
	tests/twice -q -m "not e2e and not nightly" -n $$((2 * $$(nproc))) --dist worksteal
sim: export LOCKSTEP_SEED = all
sim: install         ## fifty seeded days that break and heal
	LOCKSTEP_DAYS=50 pytest -q tests/simulation -n auto
nightly: export LOCKSTEP_SEED = all
nightly: install     ## all tests and seeds, 10,000 days, 100,000 stories, 1,000 nemeses, 10^6 hostile objects, 10,000 claims; fewer: LOCKSTEP_DAYS=, _STORIES=, _NEMESIS=, _OBJECTS=, _CLAIMS=
	pytest -q -m "not e2e" -n auto --dist worksteal
	tests/e2e/run --all
	pytest -q tests/simulation/nightly.py tests/central/poison/nightly.py tests/central/poison/by_field/nightly_fields.py \
	    tests/central/scheduler/preemption/nightly.py tests/central/scheduler/queues/nightly.py -n auto --dist worksteal -o console_output_style=count
	LOCKSTEP_SITUATIONS=5000 pytest -q tests/simulation/test_advice.py
	LOCKSTEP_LONG=1 pytest -q tests/central/server/test_strangers.py
	LOCKSTEP_TRAINING_STORIES=100000 pytest -q tests/central/controllers/training -n auto --dist worksteal
	LOCKSTEP_PLAN_STORIES=100000 pytest -q tests/central/controllers/job/test_plan_stories.py -n auto --dist worksteal
	LOCKSTEP_REQUESTS=1000000 pytest -q tests/central/coordinator/test_hostile_requests.py
	LOCKSTEP_TORCH_PYTHON=$(HOME)/.cache/lockstep-torch/venv/bin/python pytest -q tests/agent/train
	LOCKSTEP_KILL_RUNS=50 pytest -q tests/agent/train/test_killed_at_random.py
golden: install      ## replay all golden journals: the first decision that differs, in full; WORDING=1 compares reasons, too
	python -m tests.golden.play $(if $(WORDING),--wording)
mutants: install     ## change the deciding modules one by one; tests should fail (MUTANTS=number, SEED=)
	python -m tests.mutation.run --mutants $(or $(MUTANTS),20) --seed $(or $(SEED),1)
e2e: install         ## the shipped manifests on a real Kubernetes (root, Debian-like; builds and caches it)
	tests/e2e/run
bench: install       ## speed, as ratios in one run; AGAINST=COMMIT compares six rows with that commit's, with ALL=1 the whole core; GROWTH=1: exponents
	$(if $(AGAINST)$(GROWTH),,python -m tests.e2e.cluster build &&) python -m tests.benchmarks.bench $(if $(GROWTH),--growth,$(if $(AGAINST),$(if $(ALL),--core) --against $(AGAINST)))
stubs: install       ## the gRPC stubs, again
	python -m grpc_tools.protoc -I protos/stubs=protos --python_out=. --grpc_python_out=. \
	    --mypy_out=quiet:. --mypy_grpc_out=quiet:. protos/*.proto
reference: install   ## write what follows from the code: pages of docs/reference, parts of the Helm chart
	python -m tests.docs.reference
docs: $(VENV)/.user  ## build the documentation as a site in build/site; a broken link is an error
	pip install -q --group docs
	rm -rf build/docs && mkdir -p build && cp -r docs build/docs && mv build/docs/zensical.toml build
	cd build && zensical build --clean --strict
LOCK = uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
    --no-emit-find-links --custom-compile-command "make lock"
lock: $(VENV)/.user  ## pin the images' packages with their hashes in daemonset/requirements-*.txt
	pip install -q --group lock
	mkdir -p build && python -c "import tomllib; made = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
	    print(*made['dependencies'], *made['optional-dependencies']['otel'], sep='\n')" > build/bounds.txt
	$(LOCK) -c build/bounds.txt -o daemonset/requirements-agent.txt --group agent
	$(LOCK) -c build/bounds.txt -o daemonset/requirements-central.txt --group central
	$(LOCK) -o daemonset/requirements-build.txt --group build
contact:             ## who hears of vulnerabilities, in SECURITY.md (CONTACT=security@example.com)
	@test -n "$(CONTACT)" || { echo "make contact CONTACT=security@example.com" >&2; exit 1; }
	sed -i 's|the maintainers in private|$(CONTACT) in private|' SECURITY.md
images:              ## build both images with buildah, podman or docker (IMAGES=registry.example/lockstep, BASE=, PLATFORM=)
	daemonset/build-images
clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
