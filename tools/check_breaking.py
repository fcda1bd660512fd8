"""Refuses a change of the API that would break a caller of the previous commit.

The previous commit is HEAD~1, or HEAD while protos have changes that are not committed. Where there is none, or it has
no protos (a shallow clone, the first commit), there is nothing to break, and that is said.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUF = Path(sys.executable).parent / "buf"
INPUTS = ("buf.yaml", "protos/headgate", "third_party/protovalidate")


def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)


def previous_commit() -> str | None:
    dirty = git("status", "--porcelain", "--", "protos/headgate").stdout.strip()
    revision = "HEAD" if dirty else "HEAD~1"
    found = git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    return found.stdout.decode().strip() if found.returncode == 0 else None


def extract(commit: str, target: Path) -> bool:
    """Unpacks the API of a commit; False where that commit has none."""
    archive = git("archive", "--format=zip", commit, "--", *INPUTS)
    if archive.returncode != 0:
        return False
    with zipfile.ZipFile(io.BytesIO(archive.stdout)) as packed:
        packed.extractall(target)
    return any((target / "protos" / "headgate").rglob("*.proto"))


def main() -> int:
    commit = previous_commit()
    if commit is None:
        print("skipped: there is no previous commit to compare with")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        before = Path(scratch)
        if not extract(commit, before):
            print(f"skipped: {commit[:10]} has no protos")
            return 0
        compared = subprocess.run([BUF, "breaking", "--against", before], cwd=ROOT, check=False)
    if compared.returncode != 0:
        print(f"these changes break callers of {commit[:10]}: add fields and methods, never change or remove them")
        return 1
    print(f"compared with {commit[:10]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
