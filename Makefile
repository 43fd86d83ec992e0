# Two commands are all the set-up there is: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
.DEFAULT_GOAL := help
.PHONY: help venv lock demo test test-all test-slow test-waits test-alone test-gpu steady test-cluster kills faults soak fuzz hostile model mutants cluster image lint docs verify pictures screenshots manifests release release-files image-archive bench profile report audit sbom licences docs-version clean

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(BIN)/.installed ## Make .venv from the lock, and nothing else

$(BIN)/.installed: requirements.lock pyproject.toml hatch_build.py $(wildcard agent/kubelet/api/*.proto)
	$(PYTHON) -m venv .venv
	@# pip installs uv by its hashes. uv installs the rest, or pip where uv reaches no index.
	sed -n '/^uv==/,/^    # via/p' requirements.lock >$(BIN)/.uv
	$(BIN)/python -m pip install --quiet --require-hashes -r $(BIN)/.uv
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock || \
		$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
LOCK := $(COMPILE) --group dev --extra traces pyproject.toml
IMAGE_LOCK := $(COMPILE) -c requirements.lock pyproject.toml
TRACES_LOCK := $(COMPILE) -c requirements.lock --extra traces pyproject.toml
BUILD_LOCK := $(COMPILE) -c requirements.lock --group build
# The same files for every Python, so what the oldest one takes; and only for the platforms that krew has archives for.
KUBECTL_LOCK := $(subst --universal,--python-platform linux,$(COMPILE)) -c requirements.lock --group kubectl
PICTURE := $(BIN)/gputopo-bench plan dgx-1v --gpus 4 --free 0,2,4-7 -o svg
GLANCE := $(BIN)/python -m benchmarks.placement.report.glance docs/images/peers.json
WHY := $(BIN)/python -m tests.pictures.why

lock: ## Resolve the dependencies anew into the five lock files
	$(LOCK) -o requirements.lock
	$(IMAGE_LOCK) -o requirements-image.lock
	$(TRACES_LOCK) -o requirements-traces.lock
	$(BUILD_LOCK) -o requirements-build.lock
	$(KUBECTL_LOCK) -o requirements-kubectl.lock

demo: venv ## Place pods on a simulated fleet and compare with stock scheduling (no cluster needed)
	$(BIN)/gputopo-bench demo

# Tests start Python hundreds of times: without its cache each start compiles our sources again.
unexport PYTHONDONTWRITEBYTECODE

# Each tier prints its ten slowest tests. A test that takes half an hour hangs: it fails, and says where each thread stands.
PYTEST := $(BIN)/python -m pytest --durations=10 -o faulthandler_timeout=1800 -o faulthandler_exit_on_timeout=true

test: venv ## Run the tests that need neither Kubernetes nor a third of a second each
	$(PYTEST) -n auto --dist worksteal -m "not slow and not gpu"

test-all: test test-slow test-waits test-alone ## Run everything that this machine can run, a tier after the other, as CI does

# Some of them wait for a clock, or for processes of their own.
WORKERS ?= $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))

test-slow: venv ## Run the tests that need a third of a second or more each
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "slow and not waits and not alone"

# What waits for programs leaves the cores to others; what starts a control plane stays on it, a file at a time.
WAITING ?= 5

test-waits: venv ## Run the tests that start programs and wait for them
	$(PYTEST) -n $(WAITING) --dist loadfile -m "waits and not alone"

test-alone: venv ## Run the tests that measure, one at a time
	$(PYTEST) -m alone

FILES ?=

steady: venv ## Run the tests FILES twenty times while a busy loop occupies every core, and list those that failed
	@test -n "$(FILES)" || { echo "steady: which tests? FILES=tests/process/test_watches.py" >&2; exit 1; }
	$(BIN)/python -m tests.steady $(FILES)

test-gpu: venv ## Compare with nvidia-smi what the agent says of this machine's GPUs, and write a report; skipped where there are none
	$(BIN)/python -m pytest tests/gpu -m gpu

KUBE ?= $(GPUTOPO_KUBE_VERSION)

test-cluster: export GPUTOPO_KUBE_VERSION := $(KUBE)
test-cluster: venv ## Run the tests against the real Kubernetes control plane (KUBE=1.30: the oldest that is supported)
	$(BIN)/python -m tests.cluster.binaries >/dev/null
	$(BIN)/python -m pytest -m cluster tests/contract tests/cluster tests/process

kills: venv ## Kill three extenders a thousand times under load (half an hour)
	$(BIN)/python -m pytest --long -m "not cluster" -k test_c4 tests/process

faults: venv ## Run all process tests in their long forms: hundreds of rounds, minutes of outage (hours)
	$(BIN)/python -m pytest --long tests/process

SEEDS ?= 10000

soak: venv ## Simulate SEEDS runs (10000) with all faults mixed, on all cores; fails on any violation
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

FUZZ_SECONDS ?= 600

fuzz: venv ## Fuzz each parser of what strangers write for FUZZ_SECONDS (600), guided by coverage; says how to install atheris
	for parser in ledger topology args watch; do $(BIN)/python -m tests.security.fuzz $$parser $(FUZZ_SECONDS) || exit; done

SECONDS ?= 3600

hostile: venv ## Let hostile tenants loose on a real extender process for SECONDS (3600), one family after the other; HOSTILE_ARGS="--seed 13 --family groups"
	$(BIN)/python -m tests.security.hostile --seconds $(SECONDS) $(HOSTILE_ARGS)

cluster: venv ## Start a playground: real control plane, extender and simulated GPU nodes (NODES=real: real kubelets), until Ctrl-C
	$(BIN)/python -m tests.cluster

model: venv ## Explore the claim protocol and the queue exhaustively: every set-up whole, and 38 mutants that must be caught
	$(BIN)/python -m tests.model

TAG ?= gputopo:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# The first that is installed and answers; docker without its daemon does not.
BUILDER ?= $(firstword $(foreach each,podman docker buildah,$(shell command -v $(each) >/dev/null && $(each) info >/dev/null 2>&1 && echo $(each))))

# Several platforms are a manifest list, which podman and buildah do not make by a tag alone.
, := ,
IS_LIST := $(findstring $(,),$(PLATFORM))
NAMED := $(if $(IS_LIST),$(if $(filter docker,$(BUILDER)),-t,--manifest),-t)

image: ## Build the image with podman, docker or buildah (TAG=…; BASE=…@sha256:… pins the base; PLATFORM=linux/amd64,linux/arm64; BUILDER=…)
	@test -n "$(BUILDER)" || { echo "image: needs podman, docker or buildah, and none of them answers here (each is asked for its 'info')" >&2; exit 1; }
	$(BUILDER) build $(BUILD_ARGS) $(if $(BASE),--build-arg PYTHON=$(BASE)) $(if $(PLATFORM),--platform $(PLATFORM)) -f Containerfile $(NAMED) $(TAG) .

ARCHIVE ?= image.tar
SAVE_ONE := $(if $(filter buildah,$(BUILDER)),buildah push --quiet $(TAG) docker-archive:$(ARCHIVE):$(TAG),$(BUILDER) save -o $(ARCHIVE) $(TAG))
SAVE := $(if $(and $(IS_LIST),$(filter-out docker,$(BUILDER))),$(BUILDER) manifest push --quiet --all $(TAG) oci-archive:$(ARCHIVE):$(TAG),$(SAVE_ONE))

image-archive: ## Save the image that was built into the file ARCHIVE, as container runtimes import it; with the PLATFORM that it was built for
	$(SAVE)

# Where releases can be had; the workflow of releases sets both. REPOSITORY=https://github.com/OWNER/NAME REGISTRY=ghcr.io/OWNER
REPOSITORY ?=
REGISTRY ?=
PLACES := $(if $(REPOSITORY),--archives-at=$(REPOSITORY)/releases/download/v$(VERSION) --home=$(REPOSITORY)) $(if $(REGISTRY),--registry=$(REGISTRY))
BOTH := linux/amd64$(,)linux/arm64
RELEASE = $(BIN)/python -m tests.release $(VERSION) --platform=$(or $(PLATFORM),$(BOTH)) $(PLACES) $(RELEASE_ARGS)

release: venv ## Release VERSION=X.Y.Z: its number, changelog and manifests; wheel, chart, kubectl plugin, SBOM, licences, image for amd64 and arm64 (or PLATFORM=…) and checksums in dist/; a commit and its tag
	@test -n "$(VERSION)" || { echo "release: which one? VERSION=X.Y.Z" >&2; exit 1; }
	$(RELEASE)

release-files: venv ## Make only the files of VERSION, whose tag is checked out; takes the same variables (PLATFORM, REPOSITORY, REGISTRY)
	@test -n "$(VERSION)" || { echo "release-files: which one? VERSION=X.Y.Z" >&2; exit 1; }
	$(RELEASE) --tagged

.PHONY: next
next: venv ## Let the commits before the release VERSION=X.Y.Z have its number, X.Y.Z.dev0; commit the changed files
	@test -n "$(VERSION)" || { echo "next: which one? VERSION=X.Y.Z" >&2; exit 1; }
	$(BIN)/python -m tests.release $(VERSION) --next

PATHS ?= topology/placement extender/binding extender/cluster agent/plugin

mutants: venv ## Break PATHS (files or folders of the product) one line at a time, and list the breaks that no test in one process notices (hours)
	$(BIN)/python -m tests.mutation $(PATHS)

lint: venv ## Check style, types, import rules, and the sentences of pages and docstrings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.prose --all

docs: venv ## Make a site of docs/ in site/; a dead link or anchor is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

PAGES ?= pages

docs-version: venv ## Add site/ as VERSION (X.Y.Z or main) to the versions of the documentation in the folder PAGES
	$(BIN)/python -m tests.release.site site $(PAGES) "$(VERSION)"

verify: venv ## Check that generated files are what their sources give
	$(BIN)/python -m tests.manifests --check
	$(PICTURE) | cmp - docs/images/plan.svg
	$(GLANCE) | cmp - docs/images/peers.svg
	$(WHY) | cmp - docs/images/why.svg
	cp requirements.lock $(BIN)/.lock-check && $(LOCK) -o $(BIN)/.lock-check && cmp $(BIN)/.lock-check requirements.lock
	cp requirements-image.lock $(BIN)/.lock-check && $(IMAGE_LOCK) -o $(BIN)/.lock-check && cmp $(BIN)/.lock-check requirements-image.lock
	cp requirements-traces.lock $(BIN)/.lock-check && $(TRACES_LOCK) -o $(BIN)/.lock-check && cmp $(BIN)/.lock-check requirements-traces.lock
	cp requirements-build.lock $(BIN)/.lock-check && $(BUILD_LOCK) -o $(BIN)/.lock-check && cmp $(BIN)/.lock-check requirements-build.lock
	cp requirements-kubectl.lock $(BIN)/.lock-check && $(KUBECTL_LOCK) -o $(BIN)/.lock-check && cmp $(BIN)/.lock-check requirements-kubectl.lock

manifests: venv ## Write manifests/rendered again, and the generated parts of the chart's README and of the reference pages
	$(BIN)/python -m tests.manifests

pictures: venv ## Draw the pictures of the documentation: GPUs, bars, and what `kubectl gputopo why` prints
	$(PICTURE) > docs/images/plan.svg
	$(GLANCE) > docs/images/peers.svg
	$(WHY) > docs/images/why.svg

screenshots: venv ## Take the screenshots of the web view on a simulated cluster (needs Chromium: apt-get install chromium)
	$(BIN)/python -m tests.pictures.screenshots docs/images

bench: venv ## Measure the extender: latency, start and memory, pods per second (minutes; the last needs the programs of the control plane)
	$(BIN)/gputopo-bench latency
	$(BIN)/gputopo-bench state
	-$(BIN)/gputopo-bench scheduler

PROFILE_ARGS ?=

profile: venv ## Print where the CPU of a pod goes in the extender, part by part (py-spy has to be allowed to read the process: as root); PROFILE_ARGS="--nodes 5000 --stacks FILE"
	$(BIN)/python -m benchmarks.performance.profiling $(PROFILE_ARGS)

report: venv ## Run the placement experiments and write reports/placement (minutes to an hour; traces: docs/how-to/compare-placements.md)
	$(BIN)/gputopo-bench report

AUDIT := $(BIN)/uv tool run --from pip-audit==2.10.1 pip-audit --strict --disable-pip --require-hashes
SBOM := $(BIN)/uv tool run --from cyclonedx-bom==7.5.0 cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible

audit: venv ## Look for known vulnerabilities of all that is locked (asks the package index; CI does not depend on it)
	$(AUDIT) -r requirements.lock || { echo "audit: vulnerable, or the vulnerability data of the package index is out of reach: see above"; exit 1; }

SBOM_FILE ?= reports/sbom.cdx.json

sbom: venv ## Write SBOM_FILE (reports/sbom.cdx.json): what the image consists of, with hashes
	mkdir -p $(dir $(SBOM_FILE)) && $(SBOM) -o $(SBOM_FILE) requirements-image.lock

LICENCES ?= reports/licences.tsv

licences: venv ## Write LICENCES (reports/licences.tsv): the licence of all that the image consists of, as its metadata states it
	mkdir -p $(dir $(LICENCES)) && $(BIN)/python -m tests.release.licences requirements-image.lock > $(LICENCES)

clean: ## Remove what the other targets made in this folder
	rm -rf agent/kubelet/api/*_pb2* .venv dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache reports site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
