# SPDX-License-Identifier: MIT
"""The native side: the same llama.cpp tree compiled for this machine with all SIMD off.

It quantises inputs that the gguf package cannot, and it is the second oracle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierlab.cells.model import Cell
from tierlab.errors import HarnessError
from tierlab.harness.messages import Answer, Request
from tierlab.run.requests import output_bytes, place

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Problem
    from tierlab.harness.messages import Hello
    from tierlab.harness.session import Session
    from tierlab.run.requests import Inputs

SECONDS = 120.0


class Reference:
    """A native harness, started when it is first needed and again after a death."""

    def __init__(self, matrix: Matrix, open_session: Callable[[], Session]) -> None:
        self._matrix = matrix
        self._open = open_session
        self._session: Session | None = None
        self._hello: Hello | None = None

    @property
    def hello(self) -> Hello:
        """What the reference build says of itself; starts it if needed."""
        self._started()
        assert self._hello is not None
        return self._hello

    def product(self, problem: Problem, inputs: Inputs) -> NDArray[np.float32]:
        """Output of a `mul_mat` or `mul_mat_id` problem by the portable kernels, flat float32."""
        session = self._started()
        cell = Cell(problem, "default", 1, "reference", "reference")
        size = output_bytes(self._matrix, problem)
        request = place(session.arena.slots[0], 0, cell, inputs, size)
        self._ask(session, request)
        assert request.output is not None
        return np.array(session.arena.view(request.output, np.float32), np.float32)

    def quantize(self, weight_type: str, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """float32 [N, K] → blocks of `weight_type`, uint8 [N, row bytes], by ggml's own quantiser."""
        session = self._started()
        slot = session.arena.slots[0]
        slot.reset()
        n, k = values.shape
        row_bytes = self._matrix.types[weight_type].row_bytes(k)
        span = slot.put(values.astype(np.float32, copy=False))
        output = slot.reserve(n * row_bytes)
        request = Request(0, "quantize_weights", weight_type, (1, n, k), activations=span, output=output)
        self._ask(session, request)
        return np.array(session.arena.view(output, np.uint8)).reshape(n, row_bytes)

    def close(self) -> None:
        """End the process, if one runs."""
        if self._session is not None:
            self._session.stop()

    def _started(self) -> Session:
        if self._session is None:
            self._session = self._open()
        if not self._session.alive:
            self._hello = self._session.start()
        return self._session

    def _ask(self, session: Session, request: Request) -> None:
        session.submit(request)
        outcome = session.receive(SECONDS)
        if isinstance(outcome, Answer) and outcome.status == "ok":
            return
        what = outcome.message or outcome.status if isinstance(outcome, Answer) else type(outcome).__name__
        msg = (
            f"the native reference failed at {request.op} of {request.weight_type} {request.shape}: {what}. "
            "No kernel can be judged on this problem"
        )
        raise HarnessError(msg)
