# The two commands of the README are `make demo` and `make test`; the rest is a thin index. `make help` lists it.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.developer
SPARK_STAMP := $(VENV)/.spark
# Byte code is kept, whatever the shell says: each process of the tests that starts anew would compile everything again.
export PYTHONDONTWRITEBYTECODE :=
# Of what developers need (--no-compile) what is imported is compiled then: all of it is three quarters of a minute.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help install install-dev install-parquet install-encryption install-iceberg install-kafka install-schemas install-spark wheel lock

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(STAMP) ## the command .venv/bin/tiered, with what it needs and nothing else, from the locked wheels

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, found " + sys.version) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing tiered and the packages of requirements.lock, by their hashes, into $(VENV)"
	$(PIP_INSTALL) --only-binary :all: --require-hashes -r requirements.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@echo "installed: $(BIN)/tiered, $$(du -sm $(VENV) | cut -f1) MB in $(VENV)"
	@touch $@

install-dev: $(DEV_STAMP) ## what developers need besides: tests, types, style

$(DEV_STAMP): $(STAMP) requirements-dev.lock
	@echo "installing the tools of developers, requirements-dev.lock, into $(VENV)"
	$(PIP_INSTALL) --no-compile --only-binary :all: --require-hashes -r requirements-dev.lock
	@touch $@

install-parquet: $(STAMP) requirements-parquet.lock ## pyarrow into .venv (170 MB more), for Parquet segments
	$(PIP_INSTALL) --only-binary :all: --require-hashes -r requirements-parquet.lock

install-iceberg: $(STAMP) requirements-iceberg.lock ## pyarrow and pyiceberg into .venv (190 MB more), for Parquet segments and Iceberg tables
	$(PIP_INSTALL) --only-binary :all: --require-hashes -r requirements-iceberg.lock

install-encryption: $(STAMP) requirements-encryption.lock ## cryptography into .venv (18 MB more), for archives that are encrypted
	$(PIP_INSTALL) --only-binary :all: --require-hashes -r requirements-encryption.lock

install-kafka: $(STAMP) requirements-kafka.lock ## confluent-kafka into .venv (13 MB more), for sinks that give the log to Kafka
	$(PIP_INSTALL) --only-binary :all: --require-hashes -r requirements-kafka.lock

install-schemas: $(STAMP) requirements-schemas.lock ## fastavro and protobuf into .venv (9 MB more), for sinks that decode bodies
	$(PIP_INSTALL) --only-binary :all: --require-hashes -r requirements-schemas.lock

# PySpark is published as source only: a zip of jars and Python files, nothing is compiled.
install-spark: $(SPARK_STAMP) ## PySpark and Arrow into .venv, for what lies in spark/; to run it takes Java 17

$(SPARK_STAMP): $(STAMP) requirements-spark.lock
	@echo "installing PySpark and Arrow, requirements-spark.lock, into $(VENV)"
	$(PIP_INSTALL) --no-compile --only-binary :all: --no-binary pyspark --require-hashes -r requirements-spark.lock
	@touch $@

DIST ?= dist
wheel: install ## the program as one wheel in dist/, to install where there is no checkout
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir $(DIST) .

COMPILE := $(VENV)-lock/bin/uv pip compile --quiet --universal --no-strip-extras --no-emit-index-url --generate-hashes --python-version 3.11
WHEELS := --only-binary :all: --extra s3fs pyproject.toml requirements-build.in
lock: ## resolve the dependencies anew: for users, for developers (the same and more), for Spark, Parquet, Iceberg, encryption, Kafka, schemas
	$(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/python -m pip install --quiet uv
	$(COMPILE) $(WHEELS) -o requirements.lock
	$(COMPILE) $(WHEELS) --extra dev -c requirements.lock -o requirements-dev.lock
	$(COMPILE) -c requirements-dev.lock requirements-spark.in -o requirements-spark.lock
	$(COMPILE) -c requirements-dev.lock --only-binary :all: requirements-parquet.in -o requirements-parquet.lock
	$(COMPILE) -c requirements-dev.lock --only-binary :all: requirements-iceberg.in -o requirements-iceberg.lock
	$(COMPILE) -c requirements-dev.lock --only-binary :all: requirements-encryption.in -o requirements-encryption.lock
	$(COMPILE) -c requirements-dev.lock --only-binary :all: requirements-kafka.in -o requirements-kafka.lock
	$(COMPILE) -c requirements-dev.lock --only-binary :all: requirements-schemas.in -o requirements-schemas.lock
	rm -rf $(VENV)-lock

.PHONY: e2e-no-short-cut
.PHONY: demo demo-real demo-consumer demo-million demo-spark demo-years demo-kv demo-kafka demo-read-nodes spark-ring test lint types imports unit scenes coverage fault e2e spark test-install bench bench-spark soak soak-kv soak-sinks config model mutants mutants-sample

demo: install ## the main job on embedded defaults: archive a live store, kill -9 the daemon twice, prove every byte
	$(BIN)/python -m tests.kit.demo

demo-real: install ## the same against a real RocketMQ broker and a real S3 server
	$(BIN)/python -m tests.kit.install rocketmq-5.5.0 versitygw
	$(BIN)/python -m tests.kit.demo_real

demo-consumer: install ## a Java consumer that is far behind reads through the gateway what a real broker has deleted
	$(BIN)/python -m tests.kit.install rocketmq-5.5.0
	$(BIN)/python -m tests.kit.demo_consumer

QUEUES ?= 1000000
demo-million: install ## a broker's store of a million queues (QUEUES=…), archived, killed, opened again, one queue read
	$(BIN)/python -m tests.kit.demo_million --queues $(QUEUES)

demo-spark: install install-spark ## Spark follows a live archive as a stream, scans it, and writes a report
	$(BIN)/python -m tests.kit.demo_spark

demo-years: install install-dev install-spark ## a simulated month, merged, sealed, trimmed and swept; then a Java consumer, DuckDB and Spark read it
	$(BIN)/python -m tests.kit.install rocketmq-5.5.0
	$(BIN)/python -m tests.kit.demo_years

demo-kv: install ## a thousand writers race by compare-and-set on a real broker; view and broker are killed; the history is checked
	$(BIN)/python -m tests.kit.install rocketmq-5.5.0 porcupine
	$(BIN)/python -m tests.kit.demo_kv

demo-kafka: install install-kafka ## a real broker's live log flows into a real Kafka; daemon and Kafka are killed; lost 0, doubled 0, reordered 0
	$(BIN)/python -m tests.kit.install rocketmq-5.5.0 versitygw kafka-4.4.0
	$(BIN)/python -m tests.kit.demo_kafka

demo-read-nodes: install ## read nodes die, come and go while Java and Go consumers read what a real broker has deleted
	$(BIN)/python -m tests.kit.install rocketmq-5.5.0 versitygw rocketmq-go
	$(BIN)/python -m tests.kit.demo_nodes

RINGS ?= coverage mutants-sample fault e2e spark
test: install-dev install-spark ## everything CI checks: style, types, floors, all tests; at its end what each ring took
	$(BIN)/python -m tests.kit.rings --rings $(RINGS) --beside lint types imports

lint: install-dev ## ruff: style and banned calls
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install-dev install-spark ## mypy --strict
	$(BIN)/mypy

imports: install-dev install-spark ## import-linter: the floors of the house
	$(BIN)/lint-imports

# What fails is run once more, alone, and named (tests/kit/twice.py).
PYTEST := $(BIN)/python -m tests.kit.twice --dist loadgroup --durations 15
SERVERS := broker or s3server or proxy or restcatalog or kafka

# Some tests wait, for a timer or a child: meanwhile a third worker has the core. The longest first, so that no worker waits for
# another's last one.
RING = $(PYTEST) -n 3 --no-loadscope-reorder
UNIT := tests/contract tests/property tests/unit
SCENES := --first wheel tests/scenes

# Five commits in a row draw every seeded history; `make coverage`, and so CI, runs all of them each time.
HISTORIES ?= 5
DRAWN = --one-in $(HISTORIES) --draw "$$(git rev-list --count HEAD 2>/dev/null || echo 0)"
# Tests that passed here are not run again while nothing that they import or read has changed (KEEP= runs them).
KEEP ?= --keep
unit: install-dev ## one module at a time, properties, contracts, the model: no servers; of seeded histories one in HISTORIES (5)
	$(RING) -m "not (moto or $(SERVERS))" $(UNIT) $(DRAWN) $(KEEP) $(PYTEST_ARGS)

scenes: install-dev ## several rooms at a time: archives that age, verbs over them, processes, moto; drawn and kept as by make unit
	$(RING) -m "(moto or scene) and not ($(SERVERS))" $(SCENES) tests/contract $(DRAWN) $(KEEP) $(PYTEST_ARGS)

coverage: install-dev ## both with coverage, which has a floor, and with all seeded histories
	rm -f .coverage .coverage.*
	$(RING) -m "not ($(SERVERS))" $(SCENES) $(UNIT) --cov --cov-report=json:out/coverage.json $(PYTEST_ARGS)

# Daemons and their stores wait more than they work: more workers than cores. The longest scenes first.
fault: install-dev ## crash points, torn files, damage, full disks, power cuts, lost answers
	$(PYTEST) -n 4 --no-loadscope-reorder --first soak_sample,two_daemons,memory tests/fault $(PYTEST_ARGS)

# Brokers and their clients wait, too: one more worker than cores. With more, clients meet their own time limits. The longest first; modules that share a scene
# with one of them (SHARING in tests/conftest.py) come with it.
E2E_FIRST := gateway_acl,gateway_absent,gateway_faults,gateway_49,replay_grpc,replay_remoting,gateway_handover,cli_verbs,bad_input
e2e: install-dev ## the program against real brokers, S3 servers and clients
	$(PYTEST) -n 3 --no-loadscope-reorder --first $(E2E_FIRST) tests/e2e tests/integration $(PYTEST_ARGS)
	$(PYTEST) -n 2 -m "$(SERVERS)" tests/contract $(PYTEST_ARGS)

# What consumers, rights, resets, hand-over and faults need of a gateway, it must give without its short cut, too. The setting reaches the
# gateways by their environment; tests that set it themselves keep theirs.
WITHOUT := acl faults handover restarts consumers go sql tools tools_49 questions reset_49
e2e-no-short-cut: install-dev ## consumers, rights, resets, hand-over, faults: the broker is asked about every cold pull
	TIERED_GATEWAY_COLD_RECHECK_MS=0 $(PYTEST) -n 3 --no-loadscope-reorder --first $(E2E_FIRST) $(WITHOUT:%=tests/e2e/test_gateway_%.py) $(PYTEST_ARGS)

# By themselves: a Spark session takes every core, and clients of the other tests would meet their time limits.
# The longest modules first, so that no worker waits for the other's last one.
spark: install-dev install-spark ## the PySpark data source and the jobs
	$(BIN)/python -m tests.kit.twice -n 2 --dist loadscope --no-loadscope-reorder --durations 15 \
	  --first spark_secrets,job_pipeline -m "not middlespark" tests/spark $(PYTEST_ARGS)

test-install: install ## the real counterparts of the tests: RocketMQ jars and S3 server, into a cache outside the repo
	$(BIN)/python -m tests.kit.install all

spark-ring: install-dev install-spark ## PySpark 4.1, with Delta and Iceberg, and 4.2, with Delta (500 MB each, once)
	$(BIN)/python -m tests.kit.install pyspark-oldest pyspark-4.2
	$(BIN)/python -m pytest -q tests/spark/test_spark_older.py --durations=2

SECONDS ?= 120
SEED ?= 1
bench: install-dev ## benchmarks, ratios against a baseline run beside them
	$(BIN)/python -m tests.bench $(BENCH_ARGS)

bench-spark: install-dev install-spark ## scans by Spark beside its own Parquet scan
	$(BIN)/python -m tests.bench.sparkscan $(BENCH_ARGS)

soak: install-dev ## randomised faults for SECONDS (default 120) from SEED
	$(BIN)/python -m tests.kit.soak --seconds $(SECONDS) --seed $(SEED) $(SOAK_ARGS)

SEEDS ?= $(SEED)
soak-kv: install-dev ## two key-value views of real brokers under faults, twice SECONDS for each of SEEDS ("1 2 3"); histories checked
	$(BIN)/python -m tests.kit.install rocketmq-5.5.0 porcupine
	$(BIN)/python -m tests.kit.soakkv --seconds $(SECONDS) --seeds $(SEEDS)

KILLS ?= 200
soak-sinks: install-dev install-kafka ## a real broker into a real Kafka: KILLS kills (200) from SEED, in SOAK_SECONDS (3600) at most
	$(BIN)/python -m tests.kit.install rocketmq-5.5.0 versitygw kafka-4.4.0
	$(BIN)/python -m tests.kit.soaksinks --kills $(KILLS) --seconds $(SOAK_SECONDS) --seed $(SEED) $(SOAK_ARGS)
SOAK_SECONDS ?= 3600

MUTANTS_SAMPLE ?= 10
mutants: install-dev ## change every critical line in turn: the test that guards it must fail (minutes)
	$(BIN)/python -m tests.mutants $(MUTANTS_ARGS)

mutants-sample: install-dev ## some of them, drawn by the newest commit
	$(BIN)/python -m tests.mutants --sample $(MUTANTS_SAMPLE) --seed "$$(git rev-parse HEAD 2>/dev/null || echo 0)"

model: install ## the whole model of the log protocol (minutes)
	$(BIN)/python tests/model/archive_model.py --all

config: install ## regenerate config/tiered.toml from the settings
	$(BIN)/tiered config default > config/tiered.toml
