"""A dependency that requirements.lock lacks is named with the file that declares it."""

from __future__ import annotations

from pathlib import Path

import check_lock

PROJECT = """[project]
name = "{name}"
dependencies = [{dependencies}]
"""


def workspace(root: Path, lock: str, dependencies: str) -> Path:
    service = root / "services" / "one"
    service.mkdir(parents=True)
    (root / "pyproject.toml").write_text(PROJECT.format(name="whole", dependencies=""))
    (service / "pyproject.toml").write_text(PROJECT.format(name="Service_One", dependencies=dependencies))
    (root / "requirements.lock").write_text(lock)
    return root


def test_a_lock_that_names_everything_lacks_nothing(tmp_path: Path) -> None:
    root = workspace(tmp_path, "typing-extensions==4 \\\n    --hash=x\n", '"Typing_Extensions>=4", "service-one"')
    assert check_lock.missing(root) == {}


def test_what_the_lock_lacks_is_told_by_file(tmp_path: Path) -> None:
    root = workspace(tmp_path, "rich==14\n    # via typer\n", '"typer[all]>=0.1; python_version > \'3\'", "rich"')
    assert check_lock.missing(root) == {"services/one/pyproject.toml": ["typer"]}
