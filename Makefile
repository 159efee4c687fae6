# Everything a fresh machine with Python 3.11 needs; `make demo` and `make test` do all the set-up.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow check lint docs tutorials setup clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "anchorlens needs Python 3.11 or later; run: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

demo: $(READY)
	$(BIN)/anchorlens demo

# two workers on two cores, each and its children with one thread: more would wait for each other
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'not slow' --numprocesses 2 --dist loadfile --no-loadscope-reorder

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

check: lint test docs

docs: $(READY)
	$(BIN)/python -m sphinx --builder html --nitpicky --fail-on-warning --keep-going docs docs/_build/html

tutorials: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[tutorials]'
	$(BIN)/python tutorials/render.py

clean:
	rm -rf $(VENV) runs dist docs/_build .pytest_cache .ruff_cache
