# One word a habit. `just check` is what to run before a commit; `.ci/run` is what CI runs.

default: check

# lint, types, contracts, fast tests
check: lint types contracts test

lint:
    ruff check .
    ruff format --check .

format:
    ruff check --fix .
    ruff format .

types:
    mypy

# which room may import which
contracts:
    lint-imports

test *args:
    pytest -m "not slow" -n auto {{args}}

# every test, also those that build and install
test-all *args:
    pytest -n auto {{args}}

# the real runs in models/, with a score
corpus *args:
    pytest tests/corpus -n auto {{args}}

# the whole fault matrix, what is held out of tuning apart: hours; `--models DIR` adds models of your own
quality *args:
    pytest tests/quality -n auto
    python scripts/fault_matrix.py --all --runs 3000 --baselines {{args}}

# the JSON Schema of result.json, after a change of the Result
schema:
    python scripts/make_schema.py
