# Everything a fresh machine with Python 3.11 needs; `make demo` and `make test` do all the set-up.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# the other line of TransformerLens, with the rest of the tested versions
TL4 := .venv-tl4
TL4_VERSION := 4.3.0
TL4_TESTS := tests/models tests/extras/transformer_lens_4 tests/probes tests/verdict/test_classify_command.py tests/verdict/test_on_a_bridge.py \
	tests/files/test_checkpoint.py tests/extras/importers/test_formats.py tests/extras/importers/test_vocabularies.py
# probes side by side and along a run, what is printed of each (test_contract.py runs them all), and what copies of
# holdout learn: the engine computes them, as the library (TestCopies)
TL4_NOT := --ignore tests/probes/test_compare.py --ignore tests/probes/test_along.py \
	--deselect tests/probes/test_command.py::test_a_probe_prints_one_line_or_one_json_object_and_draws \
	$(foreach class,TestKnownAnswers TestTrainingData,--deselect tests/probes/test_holdout.py::$(class))

FAST := 'not slow and not system'

# what is compiled is kept, or each of the hundreds of processes of the tests would compile the package anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-system test-core test-tl4 test-research test-standin test-tutorials test-slow check lint docs tutorials setup clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "anchorlens needs Python 3.11 or later; run: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

demo: $(READY)
	$(BIN)/anchorlens demo

# three workers on two cores, since some tests wait; each and its children compute with one thread;
# with SHAPES=--shapes the shapes of tensors are checked against the signatures
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SHAPES) -m $(FAST) --numprocesses 3 --dist loadfile --no-loadscope-reorder

# installations and machines as a whole: the wheel, packages, each product missing, a full disk, memory, killed runs, the referee
test-system: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'system and not slow' --numprocesses 2 --dist loadfile \
		$$(grep -rl --include='*.py' mark.system tests)

# the core alone: a copy of the repository without the products of extras/ and their entry points
test-core: $(READY)
	$(BIN)/python tests/core_alone.py .core
	cd .core && OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR)/.core:$(CURDIR)/.core/site $(CURDIR)/$(BIN)/python -m pytest \
		tests -m $(FAST) --numprocesses 3 --dist loadfile --no-loadscope-reorder

# on TransformerLens 4; all of the verdict's tests would take seven minutes more
test-tl4: $(TL4)/.ready
	OMP_NUM_THREADS=1 $(TL4)/bin/python -m pytest -m 'not slow' --numprocesses 2 --dist loadfile $(TL4_NOT) $(TL4_TESTS)

$(TL4)/.ready: pyproject.toml constraints.txt Makefile
	$(PYTHON) -m venv $(TL4)
	sed 's/^transformer-lens==.*/transformer-lens==$(TL4_VERSION)/' constraints.txt > $(TL4)/constraints.txt
	$(TL4)/bin/python -m pip install --quiet --upgrade --constraint $(TL4)/constraints.txt --editable '.[test]'
	@touch $@

# the replication of the papers' figures and the calibration of the verdict, made with the toolkit
test-research: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest research -m 'not slow' --numprocesses 2 --dist loadfile --no-loadscope-reorder

# what needs a GPU, on a stand-in that shows wrong devices and waits of the host (examples/benchmarks/README.md says what it cannot)
test-standin: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --standin -m gpu --numprocesses 2 --dist loadfile --no-loadscope-reorder \
		$$(grep -rl --include='*.py' mark.gpu tests research/tests)

# the notebooks, each in a kernel of its own, and the lines of the README; CI runs other stages beside them
test-tutorials: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tutorials --numprocesses 2 --timeout 1800

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow --timeout 0
	$(BIN)/python -m pytest -m slow --timeout 0 research

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

check: SHAPES := --shapes
check: lint test test-system test-tl4 test-research test-standin test-tutorials docs

docs: $(READY)
	$(BIN)/python -m sphinx --builder html --nitpicky --fail-on-warning --keep-going docs docs/_build/html

tutorials: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[tutorials]'
	$(BIN)/python tutorials/render.py

clean:
	rm -rf $(VENV) $(TL4) .core runs dist docs/_build .pytest_cache .ruff_cache
