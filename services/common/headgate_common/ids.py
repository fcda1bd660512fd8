"""Identifiers, from the one random source that is passed in.

Contract: `uid` is unique for good and safe in file names, object keys and URLs; its prefix says what it names.
"""

from __future__ import annotations

import random
from typing import Protocol

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
UID_LENGTH = 20


class Ids(Protocol):
    def uid(self, prefix: str) -> str: ...


class RandomIds:
    """100 random bits behind a prefix: `query-7h3k...`."""

    def __init__(self, source: random.Random | None = None) -> None:
        self._source = source or random.SystemRandom()

    def uid(self, prefix: str) -> str:
        return f"{prefix}-{''.join(self._source.choices(ALPHABET, k=UID_LENGTH))}"
