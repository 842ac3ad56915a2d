#!/usr/bin/env bash
# Resolve pyproject.toml (project and dev group) in a throw-away environment and write down what came out.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
python3 - > "$work/wanted.txt" <<'PY'
import tomllib

with open("pyproject.toml", "rb") as file:
    config = tomllib.load(file)
wanted = config["project"]["dependencies"] + config["dependency-groups"]["dev"]
print("\n".join(sorted(wanted)))
PY
"$work/venv/bin/pip" install --quiet --upgrade --requirement "$work/wanted.txt"
"$work/venv/bin/pip" freeze > requirements.lock
