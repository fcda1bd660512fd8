#!/usr/bin/env bash
# Resolves the workspace and writes requirements.lock. uv.lock names the registry it was resolved from, so it stays out
# of the tree; the exported file has versions and hashes only.
set -euo pipefail
cd "$(dirname "$0")/.."
uv="$(tools/setup.sh --uv)"
echo "lock: resolving the workspace" >&2
"$uv" lock --quiet "$@"
"$uv" export --quiet --all-packages --no-emit-workspace --no-header --format requirements-txt -o requirements.lock >/dev/null
echo "lock: requirements.lock names $(grep -c '^[a-zA-Z0-9]' requirements.lock) packages" >&2
