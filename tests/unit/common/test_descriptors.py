"""A process asks for as many open files as it is allowed. In processes of their own: a limit that was lowered stays."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import resource, sys
from headgate_common import descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(descriptors.limit(), descriptors.raise_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def limits(soft: int, hard: int) -> list[int]:
    """What there was, what is answered, and what there is, soft and hard."""
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(soft), str(hard)], capture_output=True, text=True, check=True
    )
    return [int(number) for number in found.stdout.split()]


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    assert limits(128, 512) == [128, 512, 512, 512]


def test_what_is_as_high_as_it_may_be_stays() -> None:
    assert limits(400, 400) == [400, 400, 400, 400]
