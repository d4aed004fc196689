# Everything a developer runs. `make setup` makes .venv; the others make it when it is missing.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test lint soak tables bench bench-tables commits costs outer memory executors peers lock clean

setup: .venv/ready

.venv/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| (echo "viewsweep needs Python 3.11 or newer; say which one: make PYTHON=python3.12" && false)
	@echo "installing what viewsweep needs into .venv (about a minute, once)"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

# make demo ARGS="--protocol naive"
demo: setup
	$(BIN)/viewsweep demo $(ARGS)

# More processes than most machines have cores: most of the time of the live tests is waiting for
# something real. The order of the files is that of tests/conftest.py; xdist's own begins with those
# of many tests, and so ends with the slowest.
test: setup
	$(MAKE) --no-print-directory --jobs 3 lint .venv/classes .venv/browser
	$(BIN)/python -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder

# With it each of the many starts of Spark and of brokers costs a third less. A Java that cannot make
# it is no error.
.venv/classes: .venv/ready
	-$(BIN)/python -m infra.classarchives
	@touch $@

# The browser that the page is tested in, from apt-get if there is none. Without one its tests fail and
# say how to get it.
.venv/browser: .venv/ready
	-$(BIN)/python -m infra.browser && touch $@

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Long campaigns: a million simulated runs, every protocol live, crashes of real processes, attacks,
# answers of real databases under load.
soak: setup
	$(BIN)/python -m bench.campaigns
	$(BIN)/python -m bench.forgedclaims
	$(BIN)/python -m bench.audits
	$(BIN)/python -m bench.liveaudits
	$(BIN)/python -m bench.crashes --times 15 --stops 3
	$(BIN)/python -m bench.hostile
	$(BIN)/python -m bench.answers --database postgres
	$(BIN)/python -m bench.answers --database mariadb
	$(BIN)/python -m bench.databasecrashes --on mixed
	$(BIN)/python -m bench.rules campaign
	$(BIN)/python -m bench.rules writers

# The tables of the README and the pictures beside them.
tables: setup
	$(BIN)/viewsweep compare --into README.md --plot docs/messages.svg
	$(BIN)/viewsweep constructs --into README.md
	$(BIN)/viewsweep explain examples/views/catalogue.sql --workload retail --svg docs/catalogue.svg > /dev/null

# Our engine beside others, medians of runs in turns: make bench ARGS="--quick"
bench: setup
	$(BIN)/viewsweep bench $(ARGS)

# The same, with its table and its plots put into the README; a quarter of an hour, after make peers.
bench-tables: setup
	$(BIN)/viewsweep bench --into README.md --plot docs/bench.svg

# Append and read after 2,000 commits as against 20.
commits: setup
	$(BIN)/python bench/commits.py

# What an outer join costs beside its core, as in the paper on outer-join views. One thread, as below.
outer: setup
	POLARS_MAX_THREADS=1 $(BIN)/python -m bench.outerviews --into docs/outer.svg

# What the job needs of memory, against the base and with a million updates in one batch.
memory: setup
	$(BIN)/python -m bench.jobmemory --into docs/memory.svg

# How costs grow, drawn. One thread: what idle threads of a pool burn would count as cost.
costs: setup
	POLARS_MAX_THREADS=1 $(BIN)/python -m bench.curves --into docs/costs.svg

# A large batch swept by the driver and by executors, and what more of these would bring.
executors: setup
	$(BIN)/python -m bench.executors

# Pathway and Flink SQL for `viewsweep bench`: they do not fit into one environment with ours.
PEERS := .viewsweep/peers
IVY = $(firstword $(wildcard .venv/lib/python*/site-packages/pyspark/jars/ivy-*.jar))
peers: setup
	$(PYTHON) -m venv $(PEERS)/pathway
	$(PEERS)/pathway/bin/pip install --quiet --disable-pip-version-check pathway==0.33.0
	$(PYTHON) -m venv $(PEERS)/flink
	$(PEERS)/flink/bin/pip install --quiet --disable-pip-version-check apache-flink==2.3.0
	java -jar $(IVY) -dependency org.apache.flink flink-sql-connector-kafka 5.0.0-2.2 -notransitive -types jar \
		-retrieve "$(PEERS)/flink/connectors/[artifact]-[revision].[ext]" -warn

# After a change of dependencies in pyproject.toml.
lock: setup
	$(BIN)/pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
		--extra spark --extra containers --extra charts --extra postgres --extra mariadb --extra localpostgres --extra page --extra test \
		--no-emit-options \
		--output-file requirements.lock pyproject.toml

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
