"""`headgate-engine --fetch-jars`, for whoever works in this tree and has not installed it."""

from __future__ import annotations

import sys

from headgate_engine.fetching import Unavailable, fetch, fetch_s3, main

__all__ = ["Unavailable", "fetch", "fetch_s3"]

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
