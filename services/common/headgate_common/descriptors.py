"""How many files and connections a process may have open at once.

Systems commonly give a process 1,024 and allow it to ask for more: the low number is for programs that use `select`,
which these do not.
"""

from __future__ import annotations

import resource

# What Linux allows a process at most unless told otherwise; where more is allowed, nobody needs it.
_MOST = 1 << 20


def raise_limit() -> int:
    """Asks for as many descriptors as this process is allowed, and answers how many it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            # Some systems allow less than they say; then it stays as it is.
            return limit()
    return limit()


def limit() -> int:
    """How many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else soft
