#!/usr/bin/env bash
# Create a virtual environment and install the project in it, at the locked versions.
set -euo pipefail
venv=${1:?usage: install.sh VENV}
cd "$(dirname "$0")/.."

python=""
for candidate in python3.11 python3.12 python3.13 python3; do
  if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || { echo "Anabranch needs Python 3.11 or newer: install python3.11 and run this again." >&2; exit 1; }

# Debian ships Python without the part that makes virtual environments.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
  else
    echo "$python cannot make virtual environments: install the package python3-venv and run this again." >&2
    exit 1
  fi
fi

# Spark runs on Java 17 or newer, and its catalog is compiled.
java_version() { "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1; }
has_compiler() { command -v "${JAVA_HOME:+$JAVA_HOME/bin/}javac" >/dev/null; }
found=$(java_version || true)
if [ "${found:-0}" -lt 17 ] || ! has_compiler; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing Java for Spark ..."
    apt-get update -qq
    apt-get install -y -qq default-jdk-headless >/dev/null
    [ "$(java_version || true)" -ge 17 ] 2>/dev/null || apt-get install -y -qq openjdk-17-jdk-headless >/dev/null
  else
    echo "Spark and its catalog need a JDK of Java 17 or newer: install the package openjdk-17-jdk-headless (or default-jdk-headless) and run this again." >&2
    exit 1
  fi
fi

# The tests of the web UI drive a browser. Without it they are skipped.
if [ ! -x /usr/bin/chromium ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing chromium for the tests of the web UI ..."
    apt-get update -qq
    apt-get install -y -qq chromium >/dev/null || echo "chromium cannot be installed: the tests of the web UI that need a browser are skipped." >&2
  else
    echo "The tests of the web UI need a browser and are skipped without it: install the package chromium." >&2
  fi
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1
echo "Installing the locked versions into $venv ..."
"$venv/bin/pip" install --quiet --requirement requirements.lock
"$venv/bin/pip" install --quiet --no-deps --no-build-isolation --editable .
"$venv/bin/python" scripts/build_catalog.py >/dev/null
