# Each line calls the project's own commands.  `make test ARGS="-k name"` passes words on.
.DEFAULT_GOAL := help
PYTHON ?= python3
# Tests start hundreds of processes of ours: each would compile our modules anew.
unexport PYTHONDONTWRITEBYTECODE
PIP := .venv/bin/python -m pip --quiet --disable-pip-version-check
BASE := .venv/base.stamp
SPARK := .venv/spark.stamp
BROWSER := .venv/browser.stamp
NOJAVA := $(if $(shell command -v java),,1)
# The tests are three parts that run beside each other: what starts real nodes mostly waits for them, Spark
# waits now and then, and what only computes takes what is left. A module of tests stays with one process.
CLOCKED := tests/integration tests/chaos tests/spark
PARTS := test-nodes $(if $(NOSPARK),,test-spark) test-computing
FAMILIES := run group_scenario delay_scenario transaction_scenario subscription_scenario table_scenario access_scenario move_scenario loss_scenario recovery_scenario recovery_decisions_scenario recovery_groups_scenario
TOGETHER := $(MAKE) --no-print-directory --keep-going --output-sync=target
SEEDS ?= 100
# Each part has a folder of its own for what its tests write: pytest empties the folders of older runs when it
# ends, and two that end at once take them from under each other. A part that fails leaves its folder.
# With AGAIN=1 the tests of a part that failed run once more, one at a time. The output keeps the first failure.
PYTEST := run() { folder=$$(mktemp -d "$${TMPDIR:-/tmp}/logboom-tests-XXXXXX") && \
	set -- -o cache_dir="$$folder/cache" "$$@" && \
	{ .venv/bin/python -m pytest --dist loadfile --no-loadscope-reorder --basetemp="$$folder/t" "$$@" || \
	{ [ $$? = 1 ] && [ -n "$(AGAIN)" ] && echo 'What failed runs once more, one test at a time.' && \
	.venv/bin/python -m pytest --basetemp="$$folder/again" "$$@" -n 0 --last-failed; }; } && \
	rm -rf "$$folder"; }; run
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header

define CHECK_PYTHON
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'Python 3.11 or newer is needed: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11' >&2; exit 1; }; \
$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo 'Python cannot make virtual environments: sudo apt-get install python3-venv' >&2; exit 1; }
endef

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 14
setup: $(BASE) ## make .venv with every dependency, pinned and hashed
demo: $(BASE) $(if $(NOSPARK)$(NOJAVA),,$(SPARK)) ## 336,776 flights through a cluster while a broker dies; then Spark (NOSPARK=1: without)
	@.venv/bin/python -m demo $(if $(NOSPARK),--no-spark) $(ARGS)
pictures: $(BASE) $(BROWSER) ## take the pictures of the web console that README shows; needs Chromium
	@.venv/bin/python -m demo.pictures $(ARGS)
cluster: $(BASE) ## start 3 name servers and 3 brokers on this machine
	@.venv/bin/logboom cluster up $(ARGS)
stop: $(BASE) ## stop them; their data stays in .logboom
	@.venv/bin/logboom cluster down $(ARGS)
status: $(BASE) ## show the nodes
	@.venv/bin/logboom cluster status $(ARGS)
logs: $(BASE) ## show what the nodes logged
	@.venv/bin/logboom cluster logs $(ARGS)
test: $(BASE) $(BROWSER) $(if $(NOSPARK),,$(SPARK)) ## run the tests: unit, sim, integration, chaos, spark (NOSPARK=1: without)
ifdef ARGS
	@.venv/bin/python -m pytest $(if $(NOSPARK),--ignore=tests/spark) $(ARGS)
else
	@$(TOGETHER) --jobs=3 $(PARTS)
endif
verify: $(BASE) $(BROWSER) $(if $(NOSPARK),,$(SPARK)) ## run all tests, with every break, seed and kill that `make test` leaves out; SEEDS=100 or FIRST-LAST; chaos, MINUTES=10
	@status=0; \
	$(TOGETHER) --jobs=3 $(PARTS) ALL=--thorough || status=1; \
	$(TOGETHER) --jobs=$$(nproc) $(FAMILIES:%=seeds-%) || status=1; \
	$(MAKE) --no-print-directory chaos MINUTES=$(or $(MINUTES),10) FUZZ=$(or $(FUZZ),5) || status=1; \
	.venv/bin/python -m tests.unit.decoder_fuzz --minutes $(or $(FUZZ),20) || status=1; \
	.venv/bin/python -m tests.chaos.hostile_users --minutes $(or $(MINUTES),10) \
		$(if $(filter 0,$(shell id -u)),--slower 2) || status=1; \
	exit $$status
test-nodes:
	@$(PYTEST) -n 4 $(ALL) tests/chaos tests/integration
test-spark:
	@$(PYTEST) -n 1 $(ALL) tests/spark
test-computing:
	@renice -n 10 $$$$ >/dev/null; $(PYTEST) -n auto $(ALL) $(CLOCKED:%=--ignore=%)
seeds-%:
	@.venv/bin/python -m tests.sim.$* --seeds $(SEEDS)
chaos: $(BASE) ## break a cluster under load: MINUTES=10 SEED=1 FAULTS=kill-leader FUZZ=1
	@.venv/bin/python -m tests.chaos $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) \
		$(if $(RATE),--rate $(RATE)) $(if $(FAULTS),--faults $(FAULTS)) \
		$(if $(LINKS),--links $(LINKS)) $(ARGS)
	@$(if $(FUZZ),.venv/bin/python -m tests.chaos.fuzz --minutes $(FUZZ),:)
bench: $(BASE) $(if $(NOSPARK),,$(SPARK)) ## measure beside raw references, print a table, write JSON (NOSPARK=1: without Spark)
	@.venv/bin/python -m bench $(ARGS)
bench-rivals: $(BASE) ## measure Kafka, RocketMQ, Redis, NATS and RabbitMQ beside logboom (ARGS="--help": tells how)
	@.venv/bin/python -m bench.rivals $(ARGS)
generate: $(BASE) ## generate the blocking client from the asyncio client, docs/METRICS.md and docs/LOGS.md
	@.venv/bin/python client/generate_blocking.py
	@.venv/bin/python wire/generate_metrics_page.py
	@.venv/bin/python wire/generate_log_page.py
check: $(BASE) ## lint, format and types, and that what is generated is up to date
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/python client/generate_blocking.py --check
	.venv/bin/python wire/generate_metrics_page.py --check
	.venv/bin/python wire/generate_log_page.py --check
release-check: $(BASE) $(BROWSER) $(if $(NOSPARK),,$(SPARK)) .release/stamp ## known faults and licences of all dependencies; needs the advisories of PyPI
	@.venv/bin/python requirements/release_check.py $(if $(NOSPARK),$(filter-out %/spark.lock,$(wildcard requirements/*.lock)))
build: .build/stamp ## build the wheel into dist/, with nothing but Python
	.build/bin/hatchling build -t wheel
clean: ## remove dist/ and caches; .venv and the data in .logboom stay
	rm -rf dist .build .release .hypothesis .mypy_cache .pytest_cache .ruff_cache
lock: ## pin the dependencies again (needs uv)
	$(LOCK) --upgrade --extra node --extra cli --extra backup --extra console --extra tracing --group dev pyproject.toml -o requirements/base.lock
	$(LOCK) --group build -c requirements/base.lock -o requirements/build.lock
	$(LOCK) --upgrade --group release -o requirements/release.lock
	$(LOCK) --upgrade --group browser -c requirements/base.lock -o requirements/browser.lock
	$(LOCK) --upgrade bench/rivals/clients.in -o bench/rivals/clients.lock
	$(LOCK) --upgrade --extra spark -c requirements/base.lock pyproject.toml -o requirements/spark.lock

# One stamp for each lock file: nothing is installed again until the lock or pyproject changes.
$(BASE): requirements/base.lock pyproject.toml
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv .venv
	$(PIP) install --require-hashes -r requirements/base.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@
.build/stamp: requirements/build.lock
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv .build
	.build/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements/build.lock
	@touch $@
.release/stamp: requirements/release.lock
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv .release
	.release/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements/release.lock
	@touch $@
$(SPARK): requirements/spark.lock $(BASE)
	@java -version 2>/dev/null || { echo 'Spark needs Java: sudo apt-get install openjdk-17-jre-headless (without Spark: make test NOSPARK=1)' >&2; exit 1; }
	$(PIP) install --require-hashes -r requirements/spark.lock
	@touch $@
$(BROWSER): requirements/browser.lock $(BASE)
	$(PIP) install --require-hashes -r requirements/browser.lock
	@touch $@
.PHONY: help setup demo pictures cluster stop status logs test verify $(PARTS) chaos bench bench-rivals generate check release-check build clean lock
