"""Runs one benchmark of benchmarks/ by its name, or lists them.

A benchmark prints a readable table and, as its last line, one JSON object with `name`, `ratio`, `goal` and the figures
behind them.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "benchmarks"


def benchmarks() -> dict[str, Path]:
    """Every file with a `main` in it, by name."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        names = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
        if "main" in names:
            found[path.stem] = path
    return found


def purpose(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]


def main() -> int:
    known = benchmarks()
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in known:
        return subprocess.run([sys.executable, str(known[name]), *sys.argv[2:]], cwd=ROOT, check=False).returncode
    if name:
        print(f"bench: there is no benchmark {name!r}", file=sys.stderr)
    for known_name, path in known.items():
        print(f"  make bench NAME={known_name:<16} {purpose(path)}")
    if not known:
        print("bench: this tree has no benchmarks yet", file=sys.stderr)
    return 2 if name else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
