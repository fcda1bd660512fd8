"""Checks that requirements.lock names every dependency that a distribution of the workspace declares.

Runs with nothing but the standard library: it is called before anything is installed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def project_files(root: Path) -> list[Path]:
    """The pyproject.toml of the workspace and of each of its distributions."""
    candidates = [root, root / "protos", *sorted((root / "services").glob("*")), root / "tests" / "simulation"]
    return [folder / "pyproject.toml" for folder in candidates if (folder / "pyproject.toml").is_file()]


def declared(pyproject: Path) -> Iterator[str]:
    """Names of the dependencies that one pyproject.toml declares, in all its groups."""
    content = tomllib.loads(pyproject.read_text())
    project = content.get("project", {})
    requirements: list[object] = list(project.get("dependencies", []))
    for extra in project.get("optional-dependencies", {}).values():
        requirements += extra
    for group in content.get("dependency-groups", {}).values():
        requirements += group
    for requirement in requirements:
        if isinstance(requirement, str) and (match := NAME.match(requirement)):
            yield normal(match.group())


def locked(lock: Path) -> set[str]:
    return {normal(match.group()) for line in lock.read_text().splitlines() if (match := NAME.match(line))}


def missing(root: Path) -> dict[str, list[str]]:
    """What the lock lacks, by the file that declares it."""
    files = project_files(root)
    own = {normal(tomllib.loads(file.read_text())["project"]["name"]) for file in files}
    have = locked(root / "requirements.lock") | own
    lacks = {str(file.relative_to(root)): sorted(set(declared(file)) - have) for file in files}
    return {file: names for file, names in lacks.items() if names}


def main() -> int:
    lacks = missing(ROOT)
    for file, names in lacks.items():
        print(f"requirements.lock lacks {', '.join(names)}, which {file} declares", file=sys.stderr)
    if lacks:
        print("run `make lock` and commit the result", file=sys.stderr)
    return 1 if lacks else 0


if __name__ == "__main__":
    raise SystemExit(main())
