# `make demo` and `make test` are all the set-up there is.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

RAY    := .venv-ray
FLOWER := .venv-flower

.PHONY: demo test test-engines test-ray test-flower lint mutants wheel-check bench bench-peers clean

demo: $(STAMP)
	$(BIN)/sottovoce sweep experiments/demo.toml --out runs/demo > /dev/null
	$(BIN)/sottovoce report runs/demo/*/ --html runs/demo.html

# One process a core; the tests of a file stay together, because they share what was computed once.
test: $(STAMP)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

# Engines that need packages of their own; `make test` leaves them out. Both at once: a Flower fleet waits most of the time.
test-engines: $(RAY)/.installed $(FLOWER)/.installed
	$(MAKE) -j 2 test-ray test-flower

test-ray: $(RAY)/.installed
	$(RAY)/bin/python -m pytest tests/engines/ray

test-flower: $(FLOWER)/.installed
	$(FLOWER)/bin/python -m pytest tests/engines/flower

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

bench: $(STAMP)
	$(BIN)/python -m benchmarks

bench-peers: $(STAMP)
	$(BIN)/python -m benchmarks.peers

# The stamp is younger than pyproject.toml and setup.py exactly when the environment holds what they ask for.
$(STAMP): pyproject.toml $(wildcard setup.py) $(wildcard src/sottovoce/*/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "sottovoce needs python3 >= 3.11, this is " + sys.version.split()[0] + "; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

$(RAY)/.installed: $(STAMP)
	.ci/layer $(VENV) $(RAY) ray
	@touch $@

$(FLOWER)/.installed: $(STAMP)
	.ci/layer $(VENV) $(FLOWER) flower
	@touch $@

clean:
	rm -rf $(VENV) $(RAY) $(FLOWER) build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
