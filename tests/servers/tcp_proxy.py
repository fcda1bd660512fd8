"""A TCP proxy that breaks what goes through it, as a network does."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CHUNK = 65_536
_TICK = 0.05


class TcpProxy:
    """Listens on a port of its own and passes bytes on to `target`, which may be set later.

    `cut` holds everything: connections stay open and silent, new ones are taken and never answered, as with a network
    that drops packets. `heal` closes those and lets new ones through, as after a partition. `cut_answers` is how likely
    it is that an answer is not passed on and its connection is closed instead: what was asked has happened then, and
    the client does not know. `slow` is how many seconds each piece of an answer is held.
    """

    def __init__(self, target: str = "", seed: int = 1) -> None:
        self.target = target
        self.cut_answers = 0.0
        self.slow = 0.0
        self.cuts = 0
        self.connections = 0
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._cut = threading.Event()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._start(self._accept)

    def cut(self) -> None:
        self._cut.set()

    def heal(self) -> None:
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            _close(*pair)
        self._cut.clear()

    def close(self) -> None:
        self._stop.set()
        # Closing alone does not wake a thread that waits for a connection.
        _close(self._listener)
        self.heal()
        for thread in self._threads:
            thread.join(5)

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            host, _, port = self.target.rpartition(":")
            try:
                far = socket.create_connection((host, int(port)), timeout=5)
            except (OSError, ValueError):
                near.close()
                continue
            with self._lock:
                self._pairs.add((near, far))
            self._start(self._pass_on, near, far)

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(near, selectors.EVENT_READ, far)
                selector.register(far, selectors.EVENT_READ, near)
                while not self._stop.is_set():
                    if self._cut.is_set():
                        self._stop.wait(_TICK)
                        continue
                    for key, _ in selector.select(_TICK):
                        data = key.fileobj.recv(_CHUNK)  # type: ignore[union-attr]
                        if not data:
                            return
                        if key.fileobj is far and self._random.random() < self.cut_answers:
                            self.cuts += 1
                            return
                        if key.fileobj is far and self.slow:
                            self._stop.wait(self.slow)
                        key.data.sendall(data)
        except (OSError, ValueError):
            return
        finally:
            with self._lock:
                self._pairs.discard((near, far))
            _close(near, far)


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@contextmanager
def tcp_proxy(target: str = "") -> Iterator[TcpProxy]:
    proxy = TcpProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
