# make demo | test | lint | docs | bench: each makes its own virtual environment and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test chromium lint docs bench clean
.DELETE_ON_ERROR:

# one stamp per extra: reinstalled only when pyproject.toml changes
$(VENV)/.installed-%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	touch $@

# what errors cost with our machine and with others; then a model, and a report of it
DEMO = breast_cancer --costs malignant=10,benign=1
demo: $(VENV)/.installed-cli
	mkdir -p build/demo
	$(BIN)/apportion compare $(DEMO)
	$(BIN)/apportion fit $(DEMO) -o build/demo/model.apportion
	$(BIN)/apportion report build/demo/model.apportion breast_cancer -o build/demo/report.html
	@echo "The report is at $(CURDIR)/build/demo/report.html"
	@echo "For tables of your own: . $(BIN)/activate, then apportion --help"

# two processes, each with one thread for matrix products
test: $(VENV)/.installed-test-all chromium
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# the tests of the report drive a real browser: Debian's, unless there is one; if it cannot be had, they fail and the others run
AS_ROOT = $(if $(filter 0,$(shell id -u)),,sudo)
chromium:
	-@command -v chromium || command -v chromium-browser || command -v google-chrome || { \
		$(AS_ROOT) apt-get update -q && \
		$(AS_ROOT) env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium; }

lint: $(VENV)/.installed-test-all $(VENV)/.installed-lint
	$(BIN)/ruff check src tests benchmarks examples docs/conf.py
	$(BIN)/ruff format --check src tests benchmarks examples docs/conf.py
	$(BIN)/mypy

docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -q -W --keep-going docs docs/_build/html
	@echo "The pages are at $(CURDIR)/docs/_build/html/index.html"

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/solvers.py

clean:
	rm -rf $(VENV) build dist docs/_build docs/gallery docs/generated .pytest_cache .mypy_cache .ruff_cache
