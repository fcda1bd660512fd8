"""`headgate-engine`: the server, or `--fetch-jars`, which need not wait for all that the server imports."""

from __future__ import annotations

import sys


def main() -> int:
    if sys.argv[1:2] == ["--fetch-jars"]:
        from headgate_engine import fetching

        return fetching.main(sys.argv[2:])
    from headgate_engine import server

    return server.main()


if __name__ == "__main__":
    sys.exit(main())
