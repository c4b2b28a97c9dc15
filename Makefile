# Millstream: every command a user or developer needs. `make demo` and `make test` set up all they need by themselves.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
AGAINST ?= millstream
KILLS   ?= 100
SEED    ?=
ONLY    ?=

.PHONY: demo demo-broker test lint format bench interop kafka-suite faults faults-pipeline faults-streams examples wheel docs clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo      the e-bike plant: sensors, broker, registry and a Spark pipeline; kill -9; everything exactly once"
	@echo "make demo-broker  the broker alone: produce, consume, kill -9 it twice, lose nothing"
	@echo "make test      lint, types and all quick tests, on the built wheel"
	@echo "make interop   the slower runs with other clients (Java, Go, JavaScript) and the same tests on Apache Kafka"
	@echo "make kafka-suite  Apache Kafka's own integration tests against this broker: ONLY=ProduceRequestTest (default: all that fit one broker)"
	@echo "make faults    the long kill -9 runs: KILLS=500 SEED=7 (default: 100 kills, a new seed)"
	@echo "make faults-pipeline  the same for an exactly-once pipeline: workers, driver, JVM and broker"
	@echo "make faults-streams   the same for a Streams application that counts, with its local stores lost now and then"
	@echo "make examples  every example of examples/streams on Spark, each against a broker of its own"
	@echo "make bench     every benchmark against Apache Kafka, with ratios"
	@echo "make lint      ruff, mypy, import contracts;  make format  rewrites"
	@echo "make wheel     build the wheel;  make docs  renew the generated pages"

$(BIN)/python: scripts/setup
	@scripts/setup $(PYTHON) $(VENV)

# The package is installed from its wheel, as a user gets it; tests and tools come beside it.
$(VENV)/.installed: $(BIN)/python pyproject.toml $(shell find src -name '*.py' -o -name '*.html' -o -name '*.css' -o -name '*.js')
	@rm -rf dist && $(BIN)/python -m pip install --quiet --upgrade pip build
	@$(BIN)/python -m build --quiet --wheel --outdir dist . >/dev/null
	@$(BIN)/python -m pip install --quiet --upgrade --force-reinstall --no-deps dist/millstream-*.whl
	@$(BIN)/python -m pip install --quiet "$$(ls dist/millstream-*.whl)[all]"
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet "$$(ls dist/millstream-*.whl)[all,dev]"
	@touch $@

wheel: $(VENV)/.installed

demo: $(VENV)/.installed
	@$(BIN)/python examples/ebike/demo.py

demo-broker: $(VENV)/.installed
	@$(BIN)/python examples/broker_demo.py

# Most tests wait more than they work: two at a time, a file's tests together, in the order of their names.
test: $(VENV)/.dev lint
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.dev
	@$(BIN)/ruff format --check --quiet src tests benchmarks examples
	@$(BIN)/ruff check --quiet src tests benchmarks examples
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports >/dev/null || $(BIN)/lint-imports

format: $(VENV)/.dev
	@$(BIN)/ruff format src tests benchmarks examples
	@$(BIN)/ruff check --fix src tests benchmarks examples

interop: $(VENV)/.dev
	@$(BIN)/python -m pytest tests/interop -m "interop_slow or not interop_slow" --against millstream
	@$(BIN)/python -m pytest tests/interop -m "interop_slow or not interop_slow" --against kafka
	@$(BIN)/python -m pytest tests/storage/cleaning -m kafka

kafka-suite: $(VENV)/.dev
	@$(BIN)/python tests/interop/kafka_suite/run.py $(if $(ONLY),--only $(ONLY))

faults: $(VENV)/.dev
	@$(BIN)/python -m pytest tests/faults -m "slow or not slow" --timeout 3600
	@$(BIN)/python tests/faults/soak.py --kills $(KILLS) $(if $(SEED),--seed $(SEED))

faults-pipeline: $(VENV)/.dev
	@$(BIN)/python tests/faults/pipeline/run.py --kills $(KILLS) $(if $(SEED),--seed $(SEED))

faults-streams: $(VENV)/.dev
	@$(BIN)/python tests/faults/streams/run.py --kills $(KILLS) $(if $(SEED),--seed $(SEED))

examples: $(VENV)/.dev
	@$(BIN)/python -m pytest tests/examples/test_streams.py -m "slow or not slow"

bench: $(VENV)/.dev
	@for bench in benchmarks/[a-z]*_[a-z]*.py; do case $$bench in */apache_kafka.py) ;; *) $(BIN)/python $$bench $(BENCH) || exit 1 ;; esac; done

docs: $(VENV)/.dev
	@$(BIN)/python -m millstream.settings.render docs/reference

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
