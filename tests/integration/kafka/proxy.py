"""A TCP proxy that can cut connections in the middle."""

from __future__ import annotations

import random
import socket
import threading


class Proxy:
    """Forwards connections to `target`. `cut_answers`: how likely it is that an answer is not passed on, and the
    connection cut instead: what was asked has happened then, and the client does not know."""

    def __init__(self, seed: int = 1) -> None:
        self.target: tuple[str, int] = ("", 0)
        self.cut_answers = 0.0
        self.cuts = 0
        self.connections = 0
        self._random = random.Random(seed)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            try:
                server = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            for source, sink, cuts in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._forward, args=(source, sink, cuts), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, cuts: bool) -> None:
        try:
            while data := source.recv(65536):
                if cuts and self._random.random() < self.cut_answers:
                    self.cuts += 1
                    break
                sink.sendall(data)
        except OSError:
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
