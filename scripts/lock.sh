#!/usr/bin/env bash
# Resolve pyproject.toml in a throw-away environment and write down what came out: the project with its dev group in
# requirements.lock, and what the benchmarks need besides in requirements-bench.lock.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
python3 - "$work" <<'PY'
import pathlib
import sys
import tomllib

config = tomllib.loads(pathlib.Path("pyproject.toml").read_text())
groups = config["dependency-groups"]
for name, wanted in {"dev": config["project"]["dependencies"] + groups["dev"], "bench": groups["bench"]}.items():
    pathlib.Path(sys.argv[1], f"{name}.txt").write_text("\n".join(wanted))
PY
"$work/venv/bin/pip" install --quiet --upgrade --requirement "$work/dev.txt"
"$work/venv/bin/pip" freeze > requirements.lock
"$work/venv/bin/pip" install --quiet --requirement "$work/bench.txt" --constraint requirements.lock
"$work/venv/bin/pip" freeze > requirements-bench.lock
