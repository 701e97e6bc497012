# SPDX-License-Identifier: MIT
"""The Docker engine loses its containers, or goes away, in the middle of a run."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import docker.errors
import pytest
from absent import absent
from robustness_lab import MEDIUM, Lab, finished, lab_in, records, until

from tierlab.errors import EngineError
from tierlab.toolchain.docker_client import addresses
from tierlab.toolchain.docker_engine import DockerEngine
from tierlab.toolchain.owner import LAB_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.engine, pytest.mark.docker]

SOME = 25


@pytest.fixture(scope="module")
def engine() -> Iterator[DockerEngine]:
    try:
        made = DockerEngine(lambda _: None)
    except EngineError as error:
        absent(f"no docker engine: {error}")
    with closing(made):
        made.prepare()
        yield made


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with lab_in(tmp_path / "lab") as made:
        yield made


class Door:
    """A socket that leads to the engine until it is shut: to its users the engine is gone then."""

    def __init__(self, path: Path, engine: str) -> None:
        self.path = path
        self._engine = engine
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._lines: list[socket.socket] = [self._listener]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                outer, _ = self._listener.accept()
                inner = socket.socket(socket.AF_UNIX)
                inner.connect(self._engine)
                self._lines += [outer, inner]
                for one, other in ((outer, inner), (inner, outer)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    @staticmethod
    def _carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def shut(self) -> None:
        self.path.unlink(missing_ok=True)
        for line in self._lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()


def containers(engine: DockerEngine, lab: Lab) -> list[str]:
    """Ids of the containers that processes of this lab made."""
    pids = {str(pid) for pid in lab.processes()}
    found = engine.client.containers.list(filters={"label": LAB_LABEL})
    return [item.id for item in found if item.id and item.labels[LAB_LABEL].partition(":")[0] in pids]


def assert_all_once(lab: Lab) -> None:
    last = lab.runs()[-1]
    asked = set((last / "cells.txt").read_text().split())
    assert {record["cell"] for record in records(last)} == asked
    assert {cell for cell, number in Counter(lab.executed()).items() if number > 1} == set()


def test_killed_containers_cost_nothing(lab: Lab, engine: DockerEngine) -> None:
    with lab.start(lab.matrix(*MEDIUM, "--engine", "docker")) as process:
        until(lambda: lab.runs() and len(records(lab.runs()[-1])) >= SOME, process)
        victims = containers(engine, lab)
        for victim in victims:
            with suppress(docker.errors.APIError):
                engine.client.api.kill(victim)
        done = finished(process)
    assert victims
    assert done.code == 0, done.text
    assert_all_once(lab)


def test_engine_that_goes_away_leaves_a_report_and_the_run_resumes(
    lab: Lab, engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert engine.is_made
    door = Door(tmp_path_factory.mktemp("d") / "s", addresses()[0].split("://", 1)[1])
    with lab.start(
        lab.matrix(*MEDIUM, "--engine", "docker"), {"DOCKER_HOST": f"unix://{door.path}"}
    ) as process:
        until(lambda: lab.runs() and len(records(lab.runs()[-1])) >= SOME, process)
        door.shut()
        done = finished(process)
    assert done.code == 2, done.text
    assert "Traceback" not in done.text
    assert "without an answer" in done.text
    assert (lab.runs()[-1] / "report.json").exists()
    again = lab.run(lab.matrix(*MEDIUM, "--engine", "docker"))
    assert again.code == 0, again.text
    assert_all_once(lab)
