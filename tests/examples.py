"""How many cases a property test tries: all that it names in `make test`, a share of them in the quick loop."""

from __future__ import annotations

import os

# Set by `make check`, which has a minute for everything.
SHARE = float(os.environ.get("HEADGATE_EXAMPLES", "1"))
# Fewer say nothing.
FEWEST = 10


def examples(wanted: int) -> int:
    """What to hand to `max_examples` of a property test that tries so many when there is time."""
    return min(wanted, max(FEWEST, round(wanted * SHARE)))
