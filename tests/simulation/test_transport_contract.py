"""The simulated transport gives the same answers and the same typed errors as gRPC: one suite for both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from headgate_common.dispatch import Dispatcher, Service
from headgate_simulation.loop import Domain, SimulationLoop
from headgate_simulation.streams import stream
from headgate_simulation.trace import Trace
from headgate_simulation.transport import Network, SimulatedTransport
from tests.unit.common.transport_contract import CASES, REASONS, World


class SimulatedWorld:
    """Two processes and a network between them."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._network = Network(loop, Trace(loop.time), 1, reasons=REASONS)
        self._servers = 0
        self.transport: SimulatedTransport = self._network.transport("caller", Domain("caller"))

    async def start(self, services: Sequence[Service]) -> str:
        self._servers += 1
        name = f"server-{self._servers}"
        self._network.listen(f"{name}:1", name, Domain(name), Dispatcher(services))
        return f"{name}:1"

    async def nowhere(self) -> str:
        return "nowhere:1"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_contract_holds_in_simulation(case: Callable[[World], Awaitable[None]]) -> None:
    loop = SimulationLoop(stream(1, "loop"))  # type: ignore[abstract]

    async def main() -> None:
        await case(SimulatedWorld(loop))

    try:
        loop.run_until_complete(main())
        assert loop.errors == []
    finally:
        loop.close()
