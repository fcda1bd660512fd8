"""Random streams that do not disturb each other.

Contract: a stream is made from a seed and a name alone. Taking one thing out of a run (an operation, a fault) leaves
the numbers that everything else draws as they were, which is what lets a failing plan be made smaller.
"""

from __future__ import annotations

import random
from hashlib import blake2b


def stream(seed: int, name: str) -> random.Random:
    return random.Random(blake2b(f"{seed}/{name}".encode(), digest_size=16).digest())
