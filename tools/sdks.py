"""Generates and builds the clients in examples/, as far as their inputs have changed: `sdks.py [go] [typescript]`.

Generated code is not committed: it is made from protos/ by plugins whose versions the lock file of each client pins.
`--fetch` only fetches plugins and libraries and makes them ready, so that a missing tool or network is told apart from
a broken client. The last line that is printed for a client is the path of its example.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUF = Path(sys.executable).parent / "buf"
DEADLINE_SECONDS = 1200
# What generated Go imports.
GO_LIBRARIES = (
    "google.golang.org/grpc",
    "google.golang.org/genproto/googleapis/rpc/errdetails",
    "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate",
)


class SdkError(Exception):
    """A client could not be built; the message says what to install or what went wrong."""


@dataclass(frozen=True, slots=True)
class Sdk:
    """One client. Commands are run in its folder, with the tools found on PATH."""

    name: str
    tools: tuple[str, ...]
    lock_files: tuple[str, ...]
    fetch: tuple[tuple[str, ...], ...]
    # What `fetch` leaves in the folder; empty where it leaves everything in the tool's own cache.
    fetched: str
    generated: str
    build: tuple[str, ...]
    example: str

    @property
    def folder(self) -> Path:
        return ROOT / "examples" / self.name


SDKS = {
    sdk.name: sdk
    for sdk in (
        Sdk(
            name="go",
            tools=("go",),
            lock_files=("go.mod", "go.sum"),
            # Compiling them takes minutes the first time, and seconds with Go's cache.
            fetch=(("go", "mod", "download"), ("go", "build", "tool", *GO_LIBRARIES)),
            fetched="",
            generated="gen",
            # Go's own cache knows what has changed, so this is quick when nothing has.
            build=("go", "build", "-o", "bin/", "./cmd/..."),
            example="bin/watch-query",
        ),
        Sdk(
            name="typescript",
            tools=("node", "npm"),
            lock_files=("package.json", "package-lock.json"),
            fetch=(("npm", "ci", "--no-audit", "--no-fund"),),
            fetched="node_modules",
            generated="src/gen",
            build=("npm", "run", "--silent", "build"),
            example="dist/watch-query.js",
        ),
    )
}


def fetch(sdk: Sdk) -> None:
    """Fetches the plugins and libraries that the lock file names."""
    for tool in sdk.tools:
        if shutil.which(tool) is None:
            raise SdkError(f"the {sdk.name} client needs `{tool}`, which is not on PATH")
    if not sdk.fetched:
        run(sdk.folder, *sdk.fetch)
        return
    stamp = sdk.folder / sdk.fetched / ".headgate-inputs"
    with unless_done(stamp, digest(sdk.folder / name for name in sdk.lock_files)) as needed:
        if needed:
            run(sdk.folder, *sdk.fetch)


def build(sdk: Sdk) -> Path:
    """Generates the code and compiles it with the example, whose path is answered."""
    fetch(sdk)
    template = sdk.folder / "buf.gen.yaml"
    inputs = [*sorted(ROOT.glob("protos/**/*.proto")), *sorted(ROOT.glob("third_party/**/*.proto"))]
    inputs += [template, *(sdk.folder / name for name in sdk.lock_files)]
    with unless_done(sdk.folder / sdk.generated / ".headgate-inputs", digest(inputs)) as needed:
        if needed:
            run(ROOT, (str(BUF), "generate", "--template", str(template.relative_to(ROOT))))
    run(sdk.folder, sdk.build)
    return sdk.folder / sdk.example


def digest(paths: Iterator[Path] | list[Path]) -> str:
    found = hashlib.sha256()
    for path in paths:
        found.update(f"{path.relative_to(ROOT)}\0".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


@contextmanager
def unless_done(stamp: Path, inputs: str) -> Iterator[bool]:
    """Whether something must be made again; when that went well, notes from which inputs it was made."""
    needed = not stamp.is_file() or stamp.read_text() != inputs
    yield needed
    if needed:
        stamp.write_text(inputs)


def run(folder: Path, *commands: tuple[str, ...]) -> None:
    """Runs one step after the other; the output of one is shown only where it fails."""
    for command in commands:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=DEADLINE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SdkError(f"`{' '.join(command)}` took more than {DEADLINE_SECONDS} s") from error
        if done.returncode != 0:
            raise SdkError(f"`{' '.join(command)}` failed:\n{done.stdout[-6000:]}")


@contextmanager
def locked() -> Iterator[None]:
    """Held by one process at a time: two test workers must not write the same files."""
    path = ROOT / "build" / "sdks.lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CLIENT", help=f"{' or '.join(SDKS)}; all if none is named")
    parser.add_argument("--fetch", action="store_true", help="only fetch what is needed")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(SDKS)):
        parser.error(f"there is no client {', '.join(unknown)}")
    failed = False
    with locked():
        for sdk in SDKS.values():
            if arguments.names and sdk.name not in arguments.names:
                continue
            try:
                if arguments.fetch:
                    fetch(sdk)
                    print(sdk.folder)
                else:
                    print(build(sdk))
            except SdkError as error:
                failed = True
                print(error, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
