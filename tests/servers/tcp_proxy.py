"""A TCP proxy that can be cut: what goes through it stops, as if the network between two processes had."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CHUNK = 65_536
_TICK = 0.05


class TcpProxy:
    """Listens on a port of its own and passes bytes on to `target`, until it is cut.

    `cut` holds everything: connections stay open and silent, new ones are taken and never answered, as with a network
    that drops packets. `heal` closes those and lets new ones through, as after a partition.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
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
        self._listener.close()
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
            try:
                far = socket.create_connection(self._target, timeout=5)
            except OSError:
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
def tcp_proxy(target: str) -> Iterator[TcpProxy]:
    proxy = TcpProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
