# Millstream: every command a user or developer needs. `make demo` and `make test` set up all they need by themselves.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
AGAINST ?= millstream
KILLS   ?= 100
POINTS  ?= 2000
FAULTS  ?= 100
SEEDS   ?= 2000
SEED    ?=
ONLY    ?=
BEFORE  ?=
JOBS    ?= 3
CODE    := src tests benchmarks examples
QUICK   := not slow and not interop_slow and not kafka and not long and not spark and not java and not browser and not postgres and not mariadb and not mosquitto
# Rooms that decide and do not act: their tests run in one process, so coverage says something and costs seconds.
MEASURED := cluster filters schemas settings
PYTEST  := MILLSTREAM_TESTS=quick $(BIN)/python -m pytest -p no:schemathesis -m "$(QUICK)"
# `make check` runs one process for each of these, beside ruff and mypy: folders that import the same things are
# together, because a process that collects a folder imports all of it. (xdist would collect every folder in
# every process.) What is named nowhere goes with the last.
LOG        := broker storage testing wire
SERVICES   := cli client console http interop registry rest
CONNECT    := connect
PROCESSING := $(filter-out $(MEASURED) $(LOG) $(SERVICES) $(CONNECT) support,$(patsubst tests/%/__init__.py,%,$(wildcard tests/*/__init__.py)))

# Without it every process would compile every module anew, and pytest would rewrite every assertion.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-broker dev check check-lint check-measured check-log check-services check-connect check-processing coverage test test-all lint format bench bench-before lag interop kafka-suite faults faults-pipeline faults-streams faults-sql faults-connect faults-cluster power-loss simulation examples wheel docs clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo      the e-bike plant: sensors, broker, registry and a Spark pipeline; kill -9; everything exactly once"
	@echo "make demo-broker  the broker alone: produce, consume, kill -9 it twice, lose nothing"
	@echo "make dev       an editable install with all tools in $(VENV)"
	@echo "make check     lint, types and every test without Spark, Java or a browser: the loop while editing"
	@echo "make coverage  the tests of make check, and which lines of the whole package they reach"
	@echo "make test      lint, types and all tests that take no minutes, on the built wheel"
	@echo "make interop   the slower runs with other clients (Java, Go, JavaScript) and the same tests on Apache Kafka"
	@echo "make kafka-suite  Apache Kafka's own integration tests against this broker: ONLY=ProduceRequestTest (default: all of classes.txt)"
	@echo "make faults    the long kill -9 runs: KILLS=500 SEED=7 (default: 100 kills, a new seed)"
	@echo "make faults-pipeline  the same for an exactly-once pipeline: workers, driver, JVM and broker"
	@echo "make faults-cluster   three brokers and three ZooKeepers: killed, stopped, standing still, cut off: FAULTS=1000 (default: 100; counts add up)"
	@echo "make power-loss  crash points of the disk under two models: POINTS=10000 (default: 2000; counts add up)"
	@echo "make simulation  the cluster in simulated time under seeded faults: SEEDS=10000 (default: 2000), SEED=7 for one of them, TRANSACTIONS=1 for coordinators and their clients"
	@echo "make faults-streams   the same for a Streams application that counts, with its local stores lost now and then"
	@echo "make faults-sql, faults-connect   the same for a SQL server that counts, and for a Connect worker with a file source and sink"
	@echo "make examples  every example of examples/streams on Spark, each against a broker of its own"
	@echo "make bench     every benchmark against Apache Kafka, with ratios"
	@echo "make bench-before BEFORE=DIR  the broker of this checkout against the one of another: CPU for each request"
	@echo "make lag       the longest turn of the broker's loop under the largest legal request of every API"
	@echo "make lint      ruff, mypy, import contracts;  make format  rewrites"
	@echo "make wheel     build the wheel;  make docs  renew the generated pages"

# A stamp, not $(BIN)/python: that is a link to an interpreter older than this checkout, so everything would be
# installed again at every call.
$(VENV)/.created: scripts/setup
	@scripts/setup $(PYTHON) $(VENV)
	@touch $@

# The package is installed from its wheel, as a user gets it; tests and tools come beside it.
$(VENV)/.installed: $(VENV)/.created pyproject.toml $(shell find src -name '*.py' -o -name '*.html' -o -name '*.css' -o -name '*.js')
	@rm -rf dist && $(BIN)/python -m pip install --quiet --upgrade pip build
	@$(BIN)/python -m build --quiet --wheel --outdir dist . >/dev/null
	@$(BIN)/python -m pip install --quiet --upgrade --force-reinstall --no-deps dist/millstream-*.whl
	@$(BIN)/python -m pip install --quiet "$$(ls dist/millstream-*.whl)[all]"
	@rm -f $(VENV)/.editable && touch $@

$(VENV)/.dev: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet "$$(ls dist/millstream-*.whl)[all,dev]"
	@touch $@

# The same environment with the package as links to src: what was edited runs at once, and nothing is built.
$(VENV)/.editable: $(VENV)/.created pyproject.toml
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install --quiet --editable ".[all,dev]"
	@rm -f $(VENV)/.installed $(VENV)/.dev && touch $@

# Whichever of the two is there.
TOOLS := $(if $(wildcard $(VENV)/.editable),$(VENV)/.editable,$(VENV)/.dev)

define LINT
	@$(BIN)/ruff format --check --quiet $(CODE)
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports >/dev/null || $(BIN)/lint-imports
endef

wheel: $(VENV)/.installed

demo: $(VENV)/.installed
	@$(BIN)/python examples/ebike/demo.py

demo-broker: $(VENV)/.installed
	@$(BIN)/python examples/broker_demo.py

dev: $(VENV)/.editable
	@echo "Ready. One test: $(BIN)/pytest tests/wire/test_records.py -k varint; all quick ones: make check"

check: $(VENV)/.editable
	@$(MAKE) --no-print-directory --jobs --output-sync=target check-lint check-measured check-log check-services check-connect check-processing

check-lint:
	$(LINT)

check-measured:
	@$(PYTEST) $(MEASURED:%=tests/%) $(MEASURED:%=--cov=millstream.%)

check-log:
	@$(PYTEST) $(LOG:%=tests/%)

check-services:
	@$(PYTEST) $(SERVICES:%=tests/%)

check-connect:
	@$(PYTEST) $(CONNECT:%=tests/%)

check-processing:
	@$(PYTEST) $(PROCESSING:%=tests/%)

# Of the whole package. Tracing multiplies the processor time: `check` measures a few rooms, `test` none.
coverage: $(VENV)/.editable
	@$(PYTEST) -n $(JOBS) --dist loadfile --no-loadscope-reorder --cov=millstream

# Most tests wait more than they work: three at a time, a file's tests together, in the order of their names, and
# the linters beside them. The slowest tests are named at the end.
test: $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs=2 check-lint test-all

test-all:
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=25 --durations-min=10

lint: $(TOOLS)
	$(LINT)

format: $(TOOLS)
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix $(CODE)

interop: $(VENV)/.dev
	@$(BIN)/python -m pytest tests/interop -m "interop_slow or not interop_slow" --against millstream
	@$(BIN)/python -m pytest tests/interop -m "interop_slow or not interop_slow" --against kafka
	@$(BIN)/python -m pytest tests/storage -m kafka

kafka-suite: $(VENV)/.dev
	@$(BIN)/python tests/interop/kafka_suite/run.py $(if $(ONLY),--only $(ONLY))

faults: $(VENV)/.dev
	@$(BIN)/python -m pytest tests/faults -m "slow or not slow" --timeout 3600
	@$(BIN)/python tests/faults/soak.py --kills $(KILLS) $(if $(SEED),--seed $(SEED))

faults-pipeline: $(VENV)/.dev
	@$(BIN)/python tests/faults/spark/run.py pipeline --kills $(KILLS) $(if $(SEED),--seed $(SEED))

faults-cluster: $(TOOLS)
	@$(BIN)/python tests/faults/cluster/run.py --faults $(FAULTS) $(if $(SEED),--seed $(SEED))

power-loss: $(VENV)/.dev
	@$(BIN)/python tests/faults/power_loss/run.py --points $(POINTS) $(if $(SEED),--seed $(SEED))

faults-sql faults-connect: $(VENV)/.dev
	@$(BIN)/python tests/faults/spark/run.py $(@:faults-%=%) --kills $(KILLS) $(if $(SEED),--seed $(SEED))

simulation: $(TOOLS)
	@$(BIN)/python -m tests.simulation.run $(if $(TRANSACTIONS),--transactions) $(if $(SEED),--seed $(SEED) --verbose,--seeds $(SEEDS))

faults-streams: $(VENV)/.dev
	@$(BIN)/python tests/faults/spark/run.py streams --kills $(KILLS) $(if $(SEED),--seed $(SEED))

examples: $(VENV)/.dev
	@$(BIN)/python -m pytest tests/examples/test_streams.py -m "slow or not slow"

bench: $(VENV)/.dev
	@for bench in benchmarks/[a-z]*_[a-z]*.py; do case $$bench in */apache_kafka.py|*/before_after.py|*/broker_lag.py) ;; *) $(BIN)/python $$bench $(BENCH) || exit 1 ;; esac; done

lag: $(VENV)/.dev
	@$(BIN)/python benchmarks/broker_lag.py

bench-before: $(TOOLS)
	@$(BIN)/python benchmarks/before_after.py --before $(BEFORE)

docs: $(VENV)/.dev
	@$(BIN)/python -m millstream.settings.render docs/reference
	@$(BIN)/python -m millstream.sql.functions.render docs/reference
	@$(BIN)/python -m millstream.connect.config.render docs/reference

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
