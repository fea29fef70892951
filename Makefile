# `make NAME` installs what experiment NAME needs and runs its quick config; `make test` installs
# everything and runs the tests. ARGS are passed on:
#   make pql ARGS='--config.num_seeds=8 --workdir=runs/pql/eight'
# `make pql-table` makes the tables of PQL's README again.
PYTHON ?= python3
EXPERIMENTS := $(notdir $(patsubst %/main.py,%,$(wildcard experiments/*/main.py)))
PY := .venv/bin/python

.PHONY: $(EXPERIMENTS) pql-table test test-slow lint clean
.SECONDEXPANSION:
.SECONDARY:

$(EXPERIMENTS): %: .venv/installed-%
	$(PY) -m experiments.$@.main --config=configs/$@/quick.py $(ARGS)

# The tables of experiments/pql/README.md; each part goes on where it stopped.
pql-table: .venv/installed-pql
	$(PY) -m experiments.pql.main --config=configs/pql/cube.py $(ARGS)
	$(PY) -m experiments.pql.main --config=configs/pql/scene.py $(ARGS)
	$(PY) -m experiments.pql.main --config=configs/pql/cube.py:rest $(ARGS)
	$(PY) -m lib.train.report runs/pql/cube runs/pql/cube-rest runs/pql/scene

test: $(EXPERIMENTS:%=.venv/installed-%)
	$(PY) -m pytest $(ARGS)

test-slow: $(EXPERIMENTS:%=.venv/installed-%)
	$(PY) -m pytest -m slow $(ARGS)

lint: .venv/installed
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy lib

clean:
	rm -rf .venv

# The core, once; then what one experiment needs on top, from the files that lie beside it:
# requirements.txt, and requirements-nodeps.txt for packages whose own pins are wrong.
.venv/installed: requirements.txt
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet -r requirements.txt
	touch $@

.venv/installed-%: .venv/installed $$(wildcard experiments/$$*/requirements*.txt)
	@set -e; \
	if [ -f experiments/$*/requirements.txt ]; then \
	  $(PY) -m pip install --quiet -r experiments/$*/requirements.txt; fi; \
	if [ -f experiments/$*/requirements-nodeps.txt ]; then \
	  $(PY) -m pip install --quiet --no-deps -r experiments/$*/requirements-nodeps.txt; fi
	touch $@
