# SPDX-License-Identifier: MIT
"""The engines' parts that need no engine: mounts, arguments, limits, choice, ownership, messages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tierlab.errors import EngineError, ExitCode, UsageError
from tierlab.toolchain import cgroup, choose, docker_client, host_tools, native_engine, owner
from tierlab.toolchain.bubblewrap import arguments, entering, limited
from tierlab.toolchain.capture import Capture
from tierlab.toolchain.docker_engine import container_settings
from tierlab.toolchain.engine import Limits, Mount
from tierlab.toolchain.image import load_recipe

if TYPE_CHECKING:
    from pathlib import Path

    from tierlab.toolchain.engine import Say
    from tierlab.toolchain.image import Recipe

LIMITS = Limits(memory_bytes=1 << 29, processes=20)


@pytest.mark.parametrize("target", ["lab", "/", "/opt/build", "/usr", "/lab/../usr", "/tmp/x", "/dev/shm"])
def test_targets_inside_the_image_are_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(EngineError, match="nothing was started"):
        Mount(tmp_path, target).check()


def test_a_source_must_exist(tmp_path: Path) -> None:
    Mount(tmp_path, "/lab").check()
    with pytest.raises(EngineError, match="does not exist"):
        Mount(tmp_path / "absent", "/lab").check()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("usr", "etc", "proc", "dev", "tmp"):
        (root / name).mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    return root


def test_bubblewrap_gets_everything_read_only_and_unshared(tree: Path, tmp_path: Path) -> None:
    mounts = [Mount(tmp_path, "/lab"), Mount(tmp_path, "/lab/out", writable=True)]
    options = arguments(tree, mounts, {"WORD": "a b"}, "/lab")
    text = " ".join(options)
    assert options[:3] == ["--unshare-all", "--die-with-parent", "--new-session"]
    assert "--clearenv --cap-drop ALL" in text
    assert "--share-net" not in options
    assert f"--ro-bind {tree}/usr /usr" in text
    assert "--symlink usr/bin /bin" in text
    assert f"--ro-bind {tree}/proc" not in text
    assert f"--ro-bind {tmp_path} /lab --bind {tmp_path} /lab/out --remount-ro / --chdir /lab" in text
    assert options[options.index("WORD") + 1] == "a b"
    assert "--share-net" in arguments(tree, (), {}, "/", network=True)


def test_limits_are_set_inside() -> None:
    assert limited(["true"], LIMITS) == [
        "prlimit",
        "--data=536870912",
        "--nproc=23",
        "--core=0",
        "--",
        "true",
    ]


def test_groups_are_entered_before_the_command(tmp_path: Path) -> None:
    groups = [tmp_path / "a b", tmp_path / "c"]
    command = entering(groups, ["sh", "-c", 'echo "$$ $1" > "$2"', "sh", "x  y", str(tmp_path / "out")])
    assert os.spawnvp(os.P_WAIT, command[0], command) == 0
    pid, word = (tmp_path / "out").read_text().rstrip("\n").split(" ", 1)
    assert word == "x  y"
    assert [group.read_text() for group in groups] == [f"{pid}\n", f"{pid}\n"]
    assert entering([], ["true"]) == ["true"]


def test_control_groups_of_both_versions(tmp_path: Path) -> None:
    first, second = tmp_path / "v1", tmp_path / "v2"
    for folder in (first / "memory", first / "pids", second):
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text("")
    (second / "cgroup.controllers").write_text("memory pids")
    (second / "cgroup.subtree_control").write_text("cpu memory pids")
    assert cgroup.parents(first) == [first / "memory", first / "pids"]
    assert cgroup.parents(second) == [second]
    (second / "cgroup.subtree_control").write_text("cpu")
    assert cgroup.parents(second) == []
    assert cgroup.parents(tmp_path / "absent") == []
    assert cgroup.settings(LIMITS, version_two=True) == {
        "memory.max": "536870912",
        "memory.swap.max": "0",
        "pids.max": "23",
    }
    assert cgroup.settings(LIMITS, version_two=False) == {
        "memory.limit_in_bytes": "536870912",
        "pids.max": "23",
    }


def test_a_group_is_made_and_removed(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("")
    (tmp_path / "cgroup.controllers").write_text("memory pids")
    (tmp_path / "cgroup.subtree_control").write_text("memory pids")
    with cgroup.group(LIMITS, tmp_path) as files:
        assert len(files) == 1
        assert files[0].parent.is_dir()
    assert not files[0].parent.exists()
    (tmp_path / f"{cgroup.PREFIX}999999999-0").mkdir()
    (tmp_path / f"{cgroup.PREFIX}{os.getpid()}-0").mkdir()
    cgroup.sweep_groups(tmp_path)
    assert [entry.name for entry in tmp_path.glob("tierlab-*")] == [f"{cgroup.PREFIX}{os.getpid()}-0"]


def test_containers_may_do_nothing_that_is_not_asked_for(tmp_path: Path) -> None:
    mounts = [Mount(tmp_path, "/in"), Mount(tmp_path, "/out", writable=True)]
    settings = container_settings(mounts, LIMITS, network=False, user="1000:1000")
    host = settings["host"]
    assert host["network_mode"] == "none"
    assert host["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in host["security_opt"]
    assert host["read_only"] is True
    assert host["mem_limit"] == host["memswap_limit"] == 1 << 29
    assert host["pids_limit"] == 23
    assert [mount["ReadOnly"] for mount in host["mounts"]] == [True, False]
    assert settings["own"]["user"] == "1000:1000"
    assert container_settings((), LIMITS, network=True, user="")["host"]["network_mode"] == "host"


def test_the_owner_of_a_container_is_known() -> None:
    mine = owner.labels()
    assert not owner.is_dead(mine)
    assert owner.is_dead({**mine, owner.BOOT_LABEL: "another boot"})
    pid, started = mine[owner.LAB_LABEL].split(":")
    assert owner.is_dead({**mine, owner.LAB_LABEL: f"{pid}:{int(started) + 1}"}), "a reused process number"
    assert owner.is_dead({**mine, owner.LAB_LABEL: "999999999:1"})
    assert owner.is_dead({**mine, owner.LAB_LABEL: "nonsense"})
    elsewhere = {**mine, owner.LAB_LABEL: "999999999:1", owner.NAMESPACE_LABEL: "pid:[1]"}
    assert not owner.is_dead(elsewhere), "a process of another namespace cannot be looked up"


def test_a_capture_keeps_both_ends() -> None:
    capture = Capture(limit=4)
    for piece in (b"ab", b"cdef", b"ghij", b"kl"):
        capture.feed(piece)
    assert capture.text() == "abcd\n[… 4 bytes not kept …]\nijkl"
    short = Capture(limit=4)
    short.feed(b"abcdefgh")
    assert short.text() == "abcdefgh"


def test_an_unknown_engine_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="did you mean docker") as caught:
        choose.choose_engine("dokcer")
    assert caught.value.exit_code is ExitCode.WRONG_USE


def test_native_needs_an_arm_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native_engine.platform, "machine", lambda: "x86_64")
    with pytest.raises(EngineError, match="needs an AArch64 processor and this machine is x86_64") as caught:
        choose.choose_engine("native")
    assert caught.value.exit_code is ExitCode.UNDETERMINED
    monkeypatch.setattr(native_engine.platform, "machine", lambda: "aarch64")
    engine = native_engine.NativeEngine(say=lambda line: None, cache=tmp_path, recipe=load_recipe())
    assert (engine.name, engine.emulated) == ("native", False)


def test_no_engine_at_all_names_both_reasons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIERLAB_CACHE", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError) as caught:
        choose.choose_engine()
    text = str(caught.value)
    assert "absent.sock: no such file or directory" in text
    assert "apt-get install --no-install-recommends" in text
    assert "bubblewrap" in text
    assert "mmdebstrap" in text


def test_a_distant_engine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    with pytest.raises(EngineError, match="is not on this machine"):
        docker_client.connect()


def test_an_engine_failure_is_one_clear_error() -> None:
    def fail() -> None:
        with docker_client.told("starting a container"):
            msg = "Connection refused"
            raise ConnectionError(msg)

    with pytest.raises(EngineError, match="failed while starting a container") as caught:
        fail()
    assert "connection refused" in str(caught.value)


def test_missing_tools_are_asked_for_by_exact_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_tools, "can_install", lambda: False)
    absent = host_tools.HostTool("no-such-tool", "some-package", "does something")
    with pytest.raises(EngineError, match="sudo apt-get install --no-install-recommends some-package"):
        host_tools.ensure([absent, host_tools.HostTool("sh", "dash", "is there")], say=pytest.fail)


def test_root_installs_after_saying_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []
    file = tmp_path / "tool"

    def install(packages: list[str]) -> str:
        assert said, "it must be said before it is done"
        file.write_text("")
        return f"installed {packages}"

    monkeypatch.setattr(host_tools, "can_install", lambda: True)
    monkeypatch.setattr(host_tools, "_apt_install", install)
    host_tools.ensure([host_tools.HostTool(str(file), "some-package", "does something")], said.append)
    assert "some-package" in said[0]
    gone = host_tools.HostTool(str(tmp_path / "gone"), "other-package", "does something else")
    with pytest.raises(EngineError, match=r"installing other-package failed \(installed .*other"):
        host_tools.ensure([gone], said.append)


def test_subordinate_ids_are_looked_up_by_name_or_number(tmp_path: Path) -> None:
    file = tmp_path / "subuid"
    file.write_text("somebody-else:100000:65536\n")
    assert host_tools.subordinate_ids_missing((file,))
    file.write_text(f"{host_tools.user_name()}:100000:65536\n")
    assert not host_tools.subordinate_ids_missing((file,))
    file.write_text(f"{os.geteuid()}:100000:65536\n")
    assert not host_tools.subordinate_ids_missing((file,))
    assert host_tools.subordinate_ids_missing((tmp_path / "absent",))


def test_an_ordinary_user_reads_the_exact_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_tools, "subordinate_ids_missing", lambda: True)
    monkeypatch.setattr(host_tools, "user_name", lambda: "ada")
    with pytest.raises(EngineError, match=r"sudo usermod --add-subuids 100000-165535 .* ada"):
        host_tools.ensure_ordinary_user_can_make_trees()


def test_docker_comes_first_and_rootfs_second(monkeypatch: pytest.MonkeyPatch) -> None:
    class Answering:
        name = "docker"

        def __init__(self, say: Say, recipe: Recipe | None) -> None:
            pass

    class Silent:
        def __init__(self, say: Say, recipe: Recipe | None) -> None:
            msg = "no Docker engine answers"
            raise EngineError(msg)

    class Possible:
        name = "rootfs"

        def __init__(self, say: Say, recipe: Recipe | None) -> None:
            pass

        def obstacle(self) -> None:
            return None

    monkeypatch.setattr(choose, "RootfsEngine", Possible)
    monkeypatch.setattr(choose, "DockerEngine", Answering)
    assert choose.choose_engine(say=pytest.fail).name == "docker"
    monkeypatch.setattr(choose, "DockerEngine", Silent)
    said: list[str] = []
    assert choose.choose_engine(say=said.append).name == "rootfs"
    assert said == ["engine: rootfs (no local Docker engine answers)"]
