#!/usr/bin/env bash
# Makes .venv what requirements.lock says, with every distribution of the workspace installed in place.
# Prints the path of uv on its last line when called with --uv, and then does nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

cache="${HEADGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/headgate}"

say() { echo "setup: $*" >&2; }

find_uv() {
  if command -v uv >/dev/null; then command -v uv; return; fi
  if [ ! -x "$cache/uv/bin/uv" ]; then
    say "no uv on PATH; installing one into $cache/uv"
    mkdir -p "$cache"
    python3 -m venv "$cache/uv"
    "$cache/uv/bin/pip" install --quiet uv
  fi
  echo "$cache/uv/bin/uv"
}

uv="$(find_uv)"
if [ "${1:-}" = "--uv" ]; then echo "$uv"; exit; fi

if [ ! -x .venv/bin/python ]; then
  say "making .venv"
  "$uv" venv --quiet .venv
fi
export VIRTUAL_ENV="$PWD/.venv"

# A lock that lacks a dependency would silently remove it from the environment.
.venv/bin/python tools/check_lock.py

say "installing what requirements.lock names"
"$uv" pip sync --quiet requirements.lock

members=()
for folder in protos services/* tests/simulation; do
  [ -f "$folder/pyproject.toml" ] && members+=(-e "./$folder")
done
say "installing the $((${#members[@]} / 2)) distributions of the workspace in place"
"$uv" pip install --quiet --no-deps "${members[@]}"
touch .venv/.headgate-setup
