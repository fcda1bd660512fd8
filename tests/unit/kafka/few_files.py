"""A listener in a process whose open files run out; see test_listener.py. Says how many warnings it logged, and how
many clients it had before there were files again and answered after."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import sys

from headgate_agent.kafka.codec import Header
from headgate_agent.kafka.config import KafkaLimits
from headgate_agent.kafka.connection import Client
from headgate_agent.kafka.listener import Listener
from headgate_agent.kafka.outgoing import Reply
from headgate_common.clock import SystemClock
from tests.unit.kafka.wire import frame

CLIENTS = 5


class Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())


async def answer(given: memoryview, header: Header, client: Client) -> Reply:
    return Reply([b"answer"])


async def main() -> None:
    warnings = Warnings()
    logging.getLogger().addHandler(warnings)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    limits = KafkaLimits(connections=50, descriptors_kept=16, accept_retry=0.02)
    listener = Listener(answer, limits, SystemClock())
    address = await listener.start("127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    # Made before: that takes files too.
    request = frame(18, 0, {})
    clients = [socket.socket() for _ in range(CLIENTS)]
    files: list[int] = []
    try:
        while True:
            files.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for client in clients:
        client.setblocking(False)
        await loop.sock_connect(client, address)
        await loop.sock_sendall(client, request)
    # Many tries to accept.
    await asyncio.sleep(1.0)
    before = listener.connections
    for one in files:
        os.close(one)
    async with asyncio.timeout(30):
        answers = [await loop.sock_recv(client, 100) for client in clients]
    sys.stdout.write(f"{len(warnings.seen)} {before} {sum(map(bool, answers))}\n")
    for client in clients:
        client.close()
    await listener.close()


if __name__ == "__main__":
    asyncio.run(main())
