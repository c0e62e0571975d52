# `make demo` and `make test` are all the set-up there is.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

RAY    := .venv-ray
FLOWER := .venv-flower
DOCS   := .venv-docs

.PHONY: demo test quick test-engines test-ray test-flower lint mutants some-mutants wheel-check notebooks docs dist bench bench-peers clean

demo: $(STAMP)
	$(BIN)/sottovoce sweep experiments/demo.toml --out runs/demo > /dev/null
	$(BIN)/sottovoce report runs/demo/*/ --html runs/demo.html

# One process a core; the tests of a file stay together, because they share what was computed once.
test: $(STAMP)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile $(AGAIN)

# The contracts alone, within a minute on two idle cores: for a developer between two edits.
QUICK := tests/registries/test_contract.py tests/schemes/test_contract.py tests/federation/test_round.py \
	tests/federation/test_sums.py tests/federation/test_coding.py tests/runs/test_journal.py tests/planning/test_plan.py \
	tests/privacy/test_ledger.py tests/privacy/test_plan.py tests/secagg/test_sum.py tests/secagg/test_session.py \
	tests/core/test_registry.py tests/cli/test_app.py tests/mutants/test_catalogue.py

quick: $(STAMP)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(QUICK)

# Engines that need packages of their own; `make test` leaves them out. Both at once: a Flower fleet waits most of the time.
test-engines: $(RAY)/.installed $(FLOWER)/.installed
	$(MAKE) -j 2 test-ray test-flower

test-ray: $(RAY)/.installed
	$(RAY)/bin/python -m pytest tests/engines/ray $(AGAIN)

test-flower: $(FLOWER)/.installed
	$(FLOWER)/bin/python -m pytest tests/engines/flower $(AGAIN)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# An empty environment outside the checkout: what a user gets who installs the wheel and nothing else.
wheel-check:
	PYTHON=$(PYTHON) .ci/wheel-check

# Break the guarantee on purpose, one way at a time, and see that a test fails; too slow for `make test`.
mutants: $(STAMP)
	$(BIN)/python -m tests.mutants

# Four minutes of them, in an order that is another one for every commit.
some-mutants: $(STAMP)
	$(BIN)/python -m tests.mutants --seconds 240 --workers 2 --trust

# The notebooks, executed in empty folders; a cell that fails is an error.
notebooks: $(DOCS)/.installed
	PATH="$(CURDIR)/$(BIN):$$PATH" $(DOCS)/bin/python .ci/notebooks.py

# The site, as static files in build/site; a broken link or anchor is an error.
docs: notebooks
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet

# What is published: source archive, wheel of this platform, and the list of what an install brings (CycloneDX).
dist:
	PYTHON=$(PYTHON) .ci/dist

bench: $(STAMP)
	$(BIN)/python -m benchmarks

bench-peers: $(STAMP)
	$(BIN)/python -m benchmarks.peers

# The stamp is younger than pyproject.toml and setup.py exactly when the environment holds what they ask for.
$(STAMP): pyproject.toml constraints.txt $(wildcard setup.py) $(wildcard src/sottovoce/*/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "sottovoce needs python3 >= 3.11, this is " + sys.version.split()[0] + "; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt -e '.[dev]'
	@touch $@

$(RAY)/.installed: $(STAMP)
	.ci/layer $(VENV) $(RAY) ray
	@touch $@

$(FLOWER)/.installed: $(STAMP)
	.ci/layer $(VENV) $(FLOWER) flower
	@touch $@

$(DOCS)/.installed: $(STAMP)
	.ci/layer $(VENV) $(DOCS) docs
	@touch $@

clean:
	rm -rf $(VENV) $(RAY) $(FLOWER) $(DOCS) build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
