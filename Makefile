# Every target sets up .venv by itself; the set-up is skipped when nothing changed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-quick check docs bench bench-online bench-coverage bench-real bench-checks bench-gain bench-figure bench-hostile bench-serve mutants clean

demo: $(READY)
	$(BIN)/ilb demo --out demo

# With checks of shapes, modules and all that they import have bytecode of their own. Without it, every process of the
# tests would compile 2000 files: here it is kept even where PYTHONDONTWRITEBYTECODE is set.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: $(READY)
	$(PYTEST)

test-quick: $(READY)  # all but what is marked slow; CONTRIBUTING.md says what that is
	$(PYTEST) -m 'not slow'

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY) .venv/.ready-docs  # the site, into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: $(READY)  # the offline stage: quality, speed, memory
	$(BIN)/python -m benchmarks.offline $(ARGS)

bench-online: $(READY) .venv-peers/.ready  # the online stage: regret, speed, other libraries
	$(BIN)/python -m benchmarks.online $(ARGS)

bench-real: .venv-real/.ready  # real tables of people, beside what anybody could write in ten lines: ARGS='verbagg bfi --splits 2'
	.venv-real/bin/python -m benchmarks.real_tables $(ARGS)

bench-robust: $(READY)  # every policy where the model is right and where it is wrong: ARGS='standard shift --worlds 2'
	$(BIN)/python -m benchmarks.robustness $(ARGS)

bench-checks: $(READY)  # do checks find what is wrong, and leave alone what is not? ARGS='--only drift --worlds 3'
	$(BIN)/python -m benchmarks.checks $(ARGS)

bench-gain: $(READY)  # do the intervals of ilb evaluate hold the truth? ARGS='--repeats 20 uniform'
	$(BIN)/python -m benchmarks.gain $(ARGS)

bench-coverage: $(READY)  # how often stated intervals hold, and "best with probability 0.7" is best: ARGS='standard --worlds 2'
	$(BIN)/python -m benchmarks.coverage $(ARGS)

bench-figure: $(READY)  # ARGS='fig:synthetic reproduction': playing a figure at the paper's size, with the fits of a reproduction
	$(BIN)/python -m benchmarks.figures $(ARGS)

bench-hostile: $(READY)  # hostile files and calls: tried, refused, survived; ARGS='--seconds 3600' goes on for an hour
	$(BIN)/python -m benchmarks.hostile $(ARGS)

bench-serve: $(READY) .venv-fuzz/.ready  # the service under load and under fire: ARGS='load', 'kills --runs 100', 'full', 'many', 'fuzz'
	$(BIN)/python -m benchmarks.serve $(or $(ARGS),load)

mutants: $(READY) .venv/.ready-mutation  # do the tests notice wrong code? ARGS='--sample 10 --only online/'
	$(BIN)/python -m benchmarks.mutants $(ARGS)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "ILB needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another with: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv/.ready-docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs]'
	touch $@

.venv/.ready-mutation: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,mutation]'
	touch $@

.venv-peers/.ready: benchmarks/peers-requirements.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

.venv-fuzz/.ready: benchmarks/serve-requirements.txt
	test -x .venv-fuzz/bin/python || $(PYTHON) -m venv .venv-fuzz
	.venv-fuzz/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

.venv-real/.ready: benchmarks/real-requirements.txt pyproject.toml constraints.txt
	test -x .venv-real/bin/python || $(PYTHON) -m venv .venv-real
	.venv-real/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --requirement $< --editable .
	touch $@

clean:
	rm -rf .venv .venv-fuzz .venv-peers .venv-real demo site
