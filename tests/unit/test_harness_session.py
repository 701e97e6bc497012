# SPDX-License-Identifier: MIT
"""A session with a harness that behaves, lies, dies or falls silent (played by a thread)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tierlab.errors import HarnessError
from tierlab.harness.folder import SessionFolder
from tierlab.harness.messages import Answer, Crash, Request, Timeout
from tierlab.harness.session import MAX_IN_FLIGHT, HarnessCommand, Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

HELLO = (
    b"protocol 1\nbuild b\nvariant v\narch aarch64\nhwcap 0x0\nhwcap2 0x0\nfeatures asimd\nvector_bits 0\n"
    b"streaming_bits 0\nfa64 0\nsme_version 0\nkernels 0\nend\n"
)
LIMIT = 20.0
"""Seconds for what must happen at once."""
SHORT = 0.05
"""Seconds for what must not happen."""

Play = Callable[[socket.socket, "Actor"], None]


class Actor:
    """A process that is really a thread: `play` gets the connection; its end is the process's."""

    def __init__(self, path: str, play: Play | None, code: int, stderr: str) -> None:
        self.code = code
        self.stderr = stderr
        self.ended = threading.Event()
        self.killed = threading.Event()
        self._path, self._play = path, play
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            if self._play is not None:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(self._path)
                    self._play(connection, self)
        except OSError:
            pass
        finally:
            self.ended.set()

    def poll(self) -> int | None:
        return self.code if self.ended.is_set() else None

    def wait(self, timeout: float | None = None) -> int:
        if not self.ended.wait(timeout):
            raise TimeoutError
        return self.code

    def kill(self) -> None:
        self.killed.set()
        self._thread.join(LIMIT)

    def stdout_text(self) -> str:
        return ""

    def stderr_text(self) -> str:
        return self.stderr


class Theatre:
    """Spawns one Actor after another from a list of plays."""

    def __init__(self, folder: SessionFolder) -> None:
        self.folder = folder
        self.plays: list[tuple[Play | None, int, str]] = []
        self.argv: list[Sequence[str]] = []
        self.env: list[Mapping[str, str]] = []
        self.actors: list[Actor] = []

    def add(self, play: Play | None, code: int = 0, stderr: str = "") -> None:
        self.plays.append((play, code, stderr))

    def spawn(self, argv: Sequence[str], env: Mapping[str, str]) -> Actor:
        self.argv.append(argv)
        self.env.append(env)
        play, code, stderr = self.plays.pop(0)
        actor = Actor(argv[argv.index("--socket") + 1], play, code, stderr)
        self.actors.append(actor)
        return actor


@pytest.fixture
def theatre(tmp_path: Path) -> Iterator[Theatre]:
    with SessionFolder(1 << 20, parent=tmp_path) as folder:
        yield Theatre(folder)


@pytest.fixture
def session(theatre: Theatre) -> Iterator[Session]:
    command = HarnessCommand(
        "/lab/bin/tierlab-harness",
        "/lab/bin",
        "stock",
        emulator=("/opt/qemu", "-cpu", "max"),
        env={"GGML_KLEIDIAI_SME": "4"},
        folder=str(theatre.folder.path),
    )
    with Session(theatre.folder, command, theatre.spawn) as made:
        yield made


def request(cell: int) -> Request:
    return Request(cell, "claim", "q4_0", (1, 8, 32))


def read_requests(connection: socket.socket, count: int) -> list[int]:
    """The cell numbers of the next `count` requests."""
    text = b""
    while text.count(b"end\n") < count:
        data = connection.recv(4096)
        if not data:
            raise OSError
        text += data
    return [int(line[5:]) for line in text.splitlines() if line.startswith(b"cell ")]


def answer(cell: int) -> bytes:
    return f"cell {cell}\nstatus ok\nclaimed 1\nend\n".encode()


def obliging(connection: socket.socket, actor: Actor) -> None:
    connection.sendall(HELLO)
    while True:
        for cell in read_requests(connection, 1):
            connection.sendall(answer(cell))


def answers_one_then_dies(connection: socket.socket, actor: Actor) -> None:
    connection.sendall(HELLO)
    cells = read_requests(connection, 2)
    connection.sendall(answer(cells[0]))


def dies_at_once(connection: socket.socket, actor: Actor) -> None:
    connection.sendall(HELLO)
    read_requests(connection, 2)


def falls_silent(connection: socket.socket, actor: Actor) -> None:
    connection.sendall(HELLO)
    actor.killed.wait(LIMIT)


def says_nothing(connection: socket.socket, actor: Actor) -> None:
    actor.killed.wait(LIMIT)


def lies(connection: socket.socket, actor: Actor) -> None:
    connection.sendall(HELLO)
    read_requests(connection, 1)
    connection.sendall(answer(99))
    actor.killed.wait(LIMIT)


def test_command_line(theatre: Theatre, session: Session) -> None:
    theatre.add(obliging)
    session.start(LIMIT)
    folder = str(theatre.folder.path)
    assert theatre.argv[0] == [
        *("/opt/qemu", "-cpu", "max", "/lab/bin/tierlab-harness"),
        *("--socket", f"{folder}/socket", "--arena", f"{folder}/arena"),
        *("--backend-dir", "/lab/bin", "--build-id", "stock"),
    ]
    assert theatre.env[0] == {"OMP_WAIT_POLICY": "passive", "GGML_KLEIDIAI_SME": "4"}


def test_answers_come_in_order(theatre: Theatre, session: Session) -> None:
    theatre.add(obliging)
    assert session.start(LIMIT).build == "b"
    got = []
    session.submit(request(0))
    for cell in range(1, 20):
        session.submit(request(cell))
        outcome = session.receive(LIMIT)
        assert isinstance(outcome, Answer)
        got.append(outcome.cell)
    assert got == list(range(19))
    assert session.in_flight == 1


def test_no_more_than_two_in_flight(theatre: Theatre, session: Session) -> None:
    theatre.add(falls_silent)
    session.start(LIMIT)
    for cell in range(MAX_IN_FLIGHT):
        session.submit(request(cell))
    with pytest.raises(HarnessError, match="2 requests wait"):
        session.submit(request(9))


def test_submit_needs_a_process(session: Session) -> None:
    with pytest.raises(HarnessError, match="no harness runs"):
        session.submit(request(0))


def test_receive_needs_a_request(theatre: Theatre, session: Session) -> None:
    theatre.add(obliging)
    session.start(LIMIT)
    with pytest.raises(HarnessError, match="no request waits"):
        session.receive(LIMIT)


def test_crash_hits_the_cell_in_work(theatre: Theatre, session: Session) -> None:
    said = "tierlab-harness: signal 4 at 0x10 in kernel+0x4 (instruction 0x00000000)\n"
    theatre.add(answers_one_then_dies, code=132, stderr=said)
    session.start(LIMIT)
    session.submit(request(5))
    session.submit(request(6))
    assert session.receive(LIMIT) == Answer(5, "ok", claimed=True)
    outcome = session.receive(LIMIT)
    assert isinstance(outcome, Crash)
    assert (outcome.request.cell, outcome.signal, outcome.symbol) == (6, 4, "kernel")
    assert outcome.unanswered == ()
    assert not session.alive


def test_requests_behind_a_crash_are_handed_back(theatre: Theatre, session: Session) -> None:
    theatre.add(dies_at_once, code=139)
    theatre.add(obliging)
    session.start(LIMIT)
    session.submit(request(5))
    session.submit(request(6))
    outcome = session.receive(LIMIT)
    assert isinstance(outcome, Crash)
    assert [left.cell for left in outcome.unanswered] == [6]
    session.start(LIMIT)
    session.submit(outcome.unanswered[0])
    assert session.receive(LIMIT) == Answer(6, "ok", claimed=True)


def test_silence_is_a_timeout_and_the_process_is_killed(theatre: Theatre, session: Session) -> None:
    theatre.add(falls_silent, stderr="still thinking")
    session.start(LIMIT)
    session.submit(request(5))
    session.submit(request(6))
    outcome = session.receive(SHORT)
    assert isinstance(outcome, Timeout)
    assert (outcome.request.cell, outcome.seconds, outcome.stderr) == (5, SHORT, "still thinking")
    assert [left.cell for left in outcome.unanswered] == [6]
    assert theatre.actors[0].killed.is_set()
    assert not session.alive


def test_farewell_returns_all_that_the_process_said(theatre: Theatre, session: Session) -> None:
    theatre.add(obliging, stderr="kleidiai: primary q4 kernel feature I8MM\n")
    session.start(LIMIT)
    assert session.farewell(LIMIT) == "kleidiai: primary q4 kernel feature I8MM\n"
    assert theatre.actors[0].ended.is_set()
    assert not session.alive
    assert session.farewell() == "", "nobody is left to say anything"


def test_death_before_hello_tells_what_it_said(theatre: Theatre, session: Session) -> None:
    theatre.add(None, code=2, stderr="tierlab-harness: ggml found no CPU backend")
    with pytest.raises(HarnessError, match=r"died before it connected \(return code 2\).*no CPU backend"):
        session.start(LIMIT)
    assert not session.alive


def test_hanging_up_without_hello(theatre: Theatre, session: Session) -> None:
    theatre.add(lambda connection, actor: None, code=0)
    with pytest.raises(HarnessError, match="without a hello"):
        session.start(LIMIT)


def test_no_hello_in_time(theatre: Theatre, session: Session) -> None:
    theatre.add(says_nothing)
    with pytest.raises(HarnessError, match="said no hello within"):
        session.start(SHORT)
    assert theatre.actors[0].killed.is_set()


def test_answer_to_another_cell_is_refused(theatre: Theatre, session: Session) -> None:
    theatre.add(lies)
    session.start(LIMIT)
    session.submit(request(1))
    with pytest.raises(HarnessError, match="answered request 99 where 1 was due"):
        session.receive(LIMIT)
    assert theatre.actors[0].killed.is_set()
