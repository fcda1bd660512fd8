"""Checks that no file of the tree names a package registry's host or a folder of one machine, and that none is a large
binary.

It looks at the files that git tracks or would add.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_BINARY_BYTES = 1_000_000

# Written in pieces, so that this file does not contain what it looks for.
_HOSTS = (
    ("pypi", "org"),
    ("files", "pythonhosted", "org"),
    ("proxy", "golang", "org"),
    ("sum", "golang", "org"),
    ("repo1", "maven", "org"),
    ("repo", "maven", "apache", "org"),
    ("registry", "npmjs", "org"),
    ("registry", "yarnpkg", "com"),
    ("index", "crates", "io"),
    ("static", "crates", "io"),
    ("registry-1", "docker", "io"),
)
REGISTRY = re.compile(r"(?<![\w.-])(?:" + "|".join(r"\.".join(map(re.escape, host)) for host in _HOSTS) + r")(?![\w-])")
HOME = re.compile(r"(?<![\w.])/(?:" + "|".join(("root", r"home/[a-z_][\w-]*", r"Users/[A-Za-z][\w-]*")) + r")/[\w.]")


def tree_files(root: Path) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    return [root / name for name in listed.stdout.decode().split("\0") if name and (root / name).is_file()]


def problems(path: Path, name: str) -> Iterator[str]:
    """What is wrong with one file, a line each."""
    content = path.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        if len(content) > MAX_BINARY_BYTES:
            yield f"{name}: a binary of {len(content):,} bytes; {MAX_BINARY_BYTES:,} at most"
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if found := REGISTRY.search(line):
            yield f"{name}:{number}: names a registry's host, {found.group()}; the ordinary clients know theirs"
        if found := HOME.search(line):
            yield f"{name}:{number}: names a folder of one machine, {found.group()}..."


def main() -> int:
    files = tree_files(ROOT)
    found = [line for path in files for line in problems(path, str(path.relative_to(ROOT)))]
    for line in found:
        print(line)
    if not found:
        print(f"{len(files)} files")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
