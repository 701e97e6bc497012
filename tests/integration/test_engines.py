# SPDX-License-Identifier: MIT
"""Every engine keeps its promises: same contents, limits that bite, nothing left behind."""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from absent import absent

from tierlab.errors import EngineError
from tierlab.toolchain.docker_engine import DockerEngine, sweep_containers
from tierlab.toolchain.engine import EMULATORS, Engine, Limits, Mount, Sandbox
from tierlab.toolchain.rootfs_engine import RootfsEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

MIB = 1 << 20
SMALL = Limits(memory_bytes=512 * MIB, processes=24)
EMULATOR = EMULATORS["qemu-11.1"]
PATIENCE = 30.0
"""Seconds after which something that must happen at once counts as not happening."""

HOLD = "exec 9> /lab/held; flock 9; echo up > /lab/ready; exec sleep 600"
"""Shell words: hold a lock that the host can look at, say so, stay."""


def make_docker() -> DockerEngine:
    try:
        return DockerEngine()
    except EngineError as error:
        absent(f"no docker engine: {error}")


@pytest.fixture(
    scope="module", params=[pytest.param("docker", marks=pytest.mark.docker), pytest.param("rootfs")]
)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    made: Engine = make_docker() if request.param == "docker" else RootfsEngine()
    with closing(made):
        made.prepare()
        yield made


@pytest.fixture
def docker() -> Iterator[DockerEngine]:
    with closing(make_docker()) as made:
        yield made


@pytest.fixture(scope="module")
def probe(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the AArch64 program `probe`."""
    folder = tmp_path_factory.mktemp("probe")
    mounts = [Mount(Path(__file__).parent / "data", "/source"), Mount(folder, "/out", writable=True)]
    compile_it = ["aarch64-linux-gnu-gcc", "-O1", "-static", "-o", "/out/probe", "/source/sandbox_probe.c"]
    log = folder / "log"
    assert engine.run(compile_it, mounts=mounts, log=log) == 0, log.read_text()
    return folder


@pytest.fixture
def shm() -> Iterator[Path]:
    """A session directory as the lab makes them: in shared memory, removed afterwards."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tierlab-test-") as folder:
        os.mkfifo(Path(folder, "ready"))
        yield Path(folder)


def shell(sandbox: Sandbox, script: str) -> tuple[int, str]:
    process = sandbox.spawn(["sh", "-c", script])
    return process.wait(PATIENCE), process.stdout_text() + process.stderr_text()


def await_ready(folder: Path) -> None:
    """Wait until the process that runs HOLD says that it does."""
    pipe = os.open(folder / "ready", os.O_RDONLY | os.O_NONBLOCK)
    try:
        readable, _, _ = select.select([pipe], [], [], PATIENCE)
        assert readable, "the process never said that it is up"
        assert os.read(pipe, 16) == b"up\n"
    finally:
        os.close(pipe)


def is_free(lock: Path) -> bool:
    """Whether nobody holds the lock any more, or stops holding it soon."""
    return subprocess.run(["flock", "-w", str(PATIENCE), lock, "true"], check=False).returncode == 0


def is_held(lock: Path) -> bool:
    return subprocess.run(["flock", "-n", lock, "true"], check=False).returncode == 1


@pytest.mark.docker
def test_both_engines_have_the_same_contents() -> None:
    rootfs = RootfsEngine()
    with closing(make_docker()) as docker:
        assert docker.manifest() == rootfs.manifest()
        assert docker.identity() == rootfs.identity()


def test_the_image_holds_what_the_lab_needs(engine: Engine, tmp_path: Path) -> None:
    found = {}
    for name, program in EMULATORS.items():
        assert engine.run([program, "--version"], log=tmp_path / name) == 0
        found[name] = (tmp_path / name).read_text().split()[2].rsplit(".", 1)[0]
    assert found == {"qemu-10.0": "10.0", "qemu-11.1": "11.1"}
    log = tmp_path / "gcc"
    assert engine.run(["aarch64-linux-gnu-g++", "-dumpversion"], log=log) == 0
    assert log.read_text().strip() == "14"
    assert engine.run(["ls", "/opt/kleidiai/usr/lib/aarch64-linux-gnu/libkleidiai.a"], log=log) == 0
    assert any(name.startswith("libkleidiai-dev") for name in engine.manifest())


def test_run_logs_both_streams_and_returns_the_code(engine: Engine, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = engine.run(["sh", "-c", "echo out; echo err >&2; pwd; exit 7"], log=log, workdir="/opt")
    assert code == 7
    assert log.read_text() == "out\nerr\n/opt\n"


def test_run_kills_at_its_time_limit(engine: Engine, shm: Path) -> None:
    with pytest.raises(TimeoutError):
        engine.run(
            ["sh", "-c", "exec 9> /lab/held; flock 9; exec sleep 600"],
            mounts=[Mount(shm, "/lab", writable=True)],
            log=shm / "log",
            timeout=1.0,
        )
    assert is_free(shm / "held")


def test_return_codes_are_normalised(engine: Engine) -> None:
    with engine.sandbox(limits=SMALL) as sandbox:
        assert shell(sandbox, "exit 3") == (3, "")
        assert shell(sandbox, "kill -SEGV $$") == (128 + signal.SIGSEGV, "")
        assert shell(sandbox, "kill -ILL $$") == (128 + signal.SIGILL, "")
        assert sandbox.spawn(["no-such-program"]).wait(PATIENCE) == 127


def test_a_sandbox_that_cannot_be_made_is_a_clear_error(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    impossible = [Mount(tmp_path / "file", "/lab/file"), Mount(tmp_path, "/lab/file/below")]

    def attempt(log: Path | None) -> None:
        with engine.sandbox(impossible, SMALL) as sandbox:
            sandbox.spawn(["true"], log=log).wait(PATIENCE)

    for log in (None, tmp_path / "log"):
        with pytest.raises(
            EngineError, match=r"failed while starting a container|could not set up the sandbox"
        ):
            attempt(log)
    with engine.sandbox(limits=SMALL) as sandbox:
        assert shell(sandbox, "exit 1") == (1, ""), "the same code from a command is no such error"


def test_streams_are_kept_apart(engine: Engine) -> None:
    with engine.sandbox(limits=SMALL) as sandbox:
        process = sandbox.spawn(["sh", "-c", "echo $WORD; echo err >&2"], {"WORD": "a,b c"})
        assert process.wait(PATIENCE) == 0
        assert (process.stdout_text(), process.stderr_text()) == ("a,b c\n", "err\n")


def test_too_much_memory_is_refused(engine: Engine, probe: Path) -> None:
    with engine.sandbox([Mount(probe, "/probe")], SMALL) as sandbox:
        codes = [
            sandbox.spawn([EMULATOR, "/probe/probe", "allocate", str(mib)]).wait(PATIENCE)
            for mib in (64, 512, 4096)
        ]
    assert codes == [0, 3, 3]


def test_too_many_processes_are_refused(engine: Engine, probe: Path) -> None:
    with engine.sandbox([Mount(probe, "/probe")], SMALL) as sandbox:
        few = sandbox.spawn([EMULATOR, "/probe/probe", "fork", "4"])
        assert few.wait(PATIENCE) == 0
        many = sandbox.spawn([EMULATOR, "/probe/probe", "fork", "200"])
        assert many.wait(PATIENCE) == 3
        assert 4 <= int(many.stdout_text()) <= SMALL.processes
        again = sandbox.spawn([EMULATOR, "/probe/probe", "fork", "4"])
        assert again.wait(PATIENCE) == 0, "what the former process left behind still counts"


def test_no_network(engine: Engine, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = ["bash", "-c", f"echo > /dev/tcp/127.0.0.1/{port}"]
        log = tmp_path / "log"
        assert engine.run(connect, log=log) != 0
        assert engine.run(connect, log=log, network=True) == 0, "the control must reach the server"
    with engine.sandbox(limits=SMALL) as sandbox:
        code, devices = shell(sandbox, "tail -n +3 /proc/net/dev")
    assert code == 0
    assert [line.split(":")[0].strip() for line in devices.splitlines()] in (["lo"], [])


def test_no_capabilities(engine: Engine) -> None:
    with engine.sandbox(limits=SMALL) as sandbox:
        _, text = shell(sandbox, "grep -E '^(Cap|NoNewPrivs)' /proc/self/status")
    found = dict(line.split(":") for line in text.splitlines())
    assert {name: int(value, 16) for name, value in found.items()} == {
        "CapInh": 0,
        "CapPrm": 0,
        "CapEff": 0,
        "CapBnd": 0,
        "CapAmb": 0,
        "NoNewPrivs": 1,
    }


def test_inputs_are_read_only_and_outputs_belong_to_the_caller(engine: Engine, tmp_path: Path) -> None:
    given, out = tmp_path / "given", tmp_path / "out"
    given.mkdir()
    out.mkdir()
    (given / "input").write_text("kept")
    mounts = [Mount(given, "/lab/in"), Mount(out, "/lab/out", writable=True)]
    with engine.sandbox(mounts, SMALL) as sandbox:
        for place in ("/lab/in/input", "/lab/in/new", "/lab/new", "/new", "/opt/new", "/usr/bin/env"):
            code, _ = shell(sandbox, f"echo spoiled > {place}")
            assert code != 0, place
        assert shell(sandbox, "echo made > /lab/out/file && echo x > /tmp/x && cat /lab/in/input") == (
            0,
            "kept",
        )
    assert (given / "input").read_text() == "kept"
    status = (out / "file").stat()
    assert (status.st_uid, status.st_gid) == (os.getuid(), os.getgid())


def test_socket_and_shared_memory_work_through_the_mount(engine: Engine, probe: Path, shm: Path) -> None:
    arena = shm / "arena"
    arena.write_bytes(bytes(4096))
    mounts = [Mount(probe, "/probe"), Mount(shm, "/lab", writable=True)]
    with (
        socket.socket(socket.AF_UNIX) as server,
        arena.open("r+b") as file,
        mmap.mmap(file.fileno(), 4096) as memory,
        engine.sandbox(mounts, SMALL) as sandbox,
    ):
        server.settimeout(PATIENCE)
        server.bind(str(shm / "socket"))
        server.listen()
        process = sandbox.spawn([EMULATOR, "/probe/probe", "echo", "/lab/socket", "/lab/arena"])
        peer, _ = server.accept()
        with peer:
            peer.settimeout(PATIENCE)
            memory[7] = 41
            peer.sendall(bytes([7]))
            assert peer.recv(1) == bytes([42])
            assert memory[7] == 42
        assert process.wait(PATIENCE) == 0


def test_kill_takes_the_whole_tree(engine: Engine, shm: Path) -> None:
    with engine.sandbox([Mount(shm, "/lab", writable=True)], SMALL) as sandbox:
        process = sandbox.spawn(["sh", "-c", f"setsid sh -c '{HOLD}' & wait"])
        await_ready(shm)
        with pytest.raises(TimeoutError):
            process.wait(0.01)
        assert process.poll() is None
        assert is_held(shm / "held")
        process.kill()
        assert process.poll() == 128 + signal.SIGKILL
        assert not is_held(shm / "held")
        assert shell(sandbox, "echo alive") == (0, "alive\n")


def test_nothing_outlives_its_process(engine: Engine, shm: Path) -> None:
    with engine.sandbox([Mount(shm, "/lab", writable=True)], SMALL) as sandbox:
        process = sandbox.spawn(["sh", "-c", f"setsid sh -c '{HOLD}' & read up < /lab/relay"])
        assert process.wait(PATIENCE) != 0  # there is no /lab/relay: the first process ends at once
        assert is_free(shm / "held")


def test_a_sandbox_holds_one_process_at_a_time(engine: Engine) -> None:
    with engine.sandbox(limits=SMALL) as sandbox:
        sandbox.spawn(["sleep", "600"])
        with pytest.raises(EngineError, match="one at a time"):
            sandbox.spawn(["true"])


def test_leaving_the_sandbox_kills(engine: Engine, shm: Path) -> None:
    with engine.sandbox([Mount(shm, "/lab", writable=True)], SMALL) as sandbox:
        sandbox.spawn(["sh", "-c", HOLD])
        await_ready(shm)
    assert not is_held(shm / "held")


LAB = """
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from tierlab.toolchain.choose import choose_engine
from tierlab.toolchain.engine import Mount
with choose_engine(sys.argv[1]).sandbox([Mount(Path(sys.argv[2]), "/lab", writable=True)]) as sandbox:
    sandbox.spawn(["sh", "-c", "setsid sh -c '" + sys.argv[3] + "' & wait"]).wait()
"""


def test_nothing_outlives_a_killed_lab(engine: Engine, shm: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", LAB, engine.name, shm, HOLD]) as lab:
        await_ready(shm)
        assert is_held(shm / "held")
        lab.kill()
    assert is_free(shm / "held")


@pytest.mark.docker
def test_a_container_that_vanishes_is_a_clear_error(docker: DockerEngine, shm: Path) -> None:
    with docker.sandbox([Mount(shm, "/lab", writable=True)], SMALL) as sandbox:
        process = sandbox.spawn(["sh", "-c", HOLD])
        await_ready(shm)
        docker.client.api.remove_container(sandbox.container, force=True)
        with pytest.raises(EngineError, match="the docker engine failed while a process ran"):
            process.wait(PATIENCE)


@pytest.mark.docker
def test_containers_of_living_labs_are_not_swept(docker: DockerEngine) -> None:
    with docker.sandbox(limits=SMALL) as sandbox:
        assert sweep_containers(docker.client) == 0
        assert shell(sandbox, "echo alive") == (0, "alive\n")
