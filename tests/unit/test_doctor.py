# SPDX-License-Identifier: MIT
"""The doctor: what it says, and that it never fails itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierlab.toolchain import doctor
from tierlab.toolchain.doctor import Finding, Level, can_work, examine

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_finding_reads_as_level_subject_detail_remedy() -> None:
    text = str(Finding(Level.NOTE, "disk", "1.0 GiB free", "free some"))
    assert text.splitlines()[0] == "note     disk                    1.0 GiB free"
    assert text.splitlines()[1].strip() == "→ free some"


def test_a_bare_machine_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIERLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    monkeypatch.setenv("PATH", str(tmp_path))
    findings = examine()
    by_subject = {finding.subject: finding for finding in findings}
    assert by_subject["bwrap"].level is Level.NOTE
    assert by_subject["bwrap"].remedy == "sudo apt-get install --no-install-recommends bubblewrap"
    assert by_subject["docker"].level is Level.NOTE
    assert "absent.sock" in by_subject["docker"].detail
    assert by_subject["conclusion"].level is Level.MISSING
    assert not can_work(findings)


def test_little_space_is_noted(tmp_path: Path) -> None:
    enough = doctor._free("disk", tmp_path, 1, "free some")
    assert (enough.level, enough.remedy) == (Level.OK, "")
    little = doctor._free("disk", tmp_path, 1 << 60, "free some")
    assert (little.level, little.remedy) == (Level.NOTE, "free some")
    absent = doctor._free("shared memory", tmp_path / "absent", 1, "mount it")
    assert absent.level is Level.NOTE


def test_root_without_control_groups_is_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.cgroup, "parents", list)
    monkeypatch.setattr(doctor.host_tools, "is_root", lambda: True)
    assert doctor._limits().level is Level.NOTE
    assert "fork bomb" in doctor._limits().detail
    monkeypatch.setattr(doctor.host_tools, "is_root", lambda: False)
    assert doctor._limits().level is Level.OK


def test_one_working_engine_is_enough() -> None:
    docker = Finding(Level.NOTE, "docker", "does not answer")
    rootfs = Finding(Level.OK, "rootfs", "can be used")
    assert doctor._conclusion([docker, rootfs]).detail == "the lab can run; engine by default: rootfs"
    assert doctor._conclusion([docker]).level is Level.MISSING
