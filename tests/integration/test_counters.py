# SPDX-License-Identifier: MIT
"""Call counters on hand-made functions: every first instruction that must be moved, on several CPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tierlab.toolchain.choose import choose_engine
from tierlab.toolchain.engine import ARM_SYSROOT, EMULATORS, Mount

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tierlab.toolchain.engine import Engine, Sandbox

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).resolve().parent / "data" / "counters"

# Without and with the LSE atomics; without and with BTI; SVE; SME.
CPUS = ("cortex-a53", "neoverse-n1", "neoverse-n2", "max,sme_fa64=off")
PLACES = [(emulator, cpu) for emulator in EMULATORS for cpu in CPUS]

# Function called, argument, result, name that must be counted.
CALLS = (
    ("kai_run_plain", 5, 12, "kai_run_plain"),
    ("kai_run_ret", 4, 4, "kai_run_ret"),
    ("kai_run_adr", 1, 0xFFFFFFF1, "kai_run_adr"),
    ("kai_run_adrp", 1, 4712, "kai_run_adrp"),
    ("kai_run_b", 2, 6, "kai_run_b"),
    ("call_bl", 2, 7, "kai_run_bl"),
    ("call_blr", 2, 8, "kai_run_blr"),
    ("call_blr_x30", 2, 9, "kai_run_blr_x30"),
    ("call_bcond", 5, 100, "kai_run_bcond"),
    ("call_bcond", 6, 200, "kai_run_bcond"),
    ("kai_run_cbz", 1, 101, "kai_run_cbz"),
    ("kai_run_cbz", 0, 201, "kai_run_cbz"),
    ("kai_run_cbnz", 0, 102, "kai_run_cbnz"),
    ("kai_run_cbnz", 1, 202, "kai_run_cbnz"),
    ("kai_run_tbz", 1 << 33, 103, "kai_run_tbz"),
    ("kai_run_tbz", 1, 203, "kai_run_tbz"),
    ("kai_run_tbnz", 3, 104, "kai_run_tbnz"),
    ("kai_run_tbnz", 4, 204, "kai_run_tbnz"),
    ("kai_run_backward", 1, 105, "kai_run_backward"),
    ("kai_run_backward", 0, 205, "kai_run_backward"),
    ("kai_run_ldr_w", 1, 0xFFFFFFF1, "kai_run_ldr_w"),
    ("kai_run_ldr_x", 1, 0x1FFFFFFF1, "kai_run_ldr_x"),
    ("kai_run_ldrsw", 20, 4, "kai_run_ldrsw"),
    ("kai_run_ldr_s", 1, 0xFFFFFFF1, "kai_run_ldr_s"),
    ("kai_run_ldr_d", 1, 0x1FFFFFFF1, "kai_run_ldr_d"),
    ("kai_run_ldr_q", 1, 0x0123456789ABCDF0, "kai_run_ldr_q"),
    ("kai_run_prfm", 1, 10, "kai_run_prfm"),
    ("kai_run_bti", 1, 12, "kai_run_bti"),
    ("kai_run_pac", 1, 13, "kai_run_pac"),
    ("kai_run_split.constprop.0", 1, 16, "kai_run_split.constprop.0"),
    ("kai_run_alias_a", 1, 14, "kai_run_alias_a|kai_run_alias_b"),
    ("kai_run_alias_b", 1, 14, "kai_run_alias_a|kai_run_alias_b"),
    ("kai_run_untyped", 1, 15, "kai_run_untyped"),
    ("twin_a", 1, 22, "kai_run_twin@twin_a.o"),
    ("twin_b", 1, 23, "kai_run_twin@twin_b.o"),
)

REFUSED = {
    "kai_run_loop": "loops back",
    "kai_run_loop_after_bti": "loops back",
    "kai_run_cold_loop": "loops back",
    "kai_run_pad_alone": "landing pad",
    "kai_run_data": "data",
    "kai_run_authenticated": "authenticated",
    "kai_run_signed_with_pc": "PAuth_LR",
    "kai_run_compare_branch": "FEAT_CMPBR",
    "kai_run_picked": "IFUNC",
}


@dataclass
class Outcome:
    """What the driver printed, by the first word of the line."""

    code: int
    text: str
    lines: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for line in self.text.splitlines():
            word, _, rest = line.partition(" ")
            self.lines.setdefault(word, []).append(rest)

    def get(self, word: str) -> list[str]:
        return self.lines.get(word, [])

    @property
    def ran(self) -> dict[str, int]:
        return {name: int(calls) for name, calls in (line.split(" ") for line in self.get("ran"))}


class Driver:
    """The test's programs, built once, started in one sandbox."""

    def __init__(self, engine: Engine, sandbox: Sandbox) -> None:
        self.emulators = engine.emulated
        self.sandbox = sandbox

    def execute(self, argv: Sequence[str]) -> Outcome:
        process = self.sandbox.spawn(argv, workdir="/lab/out")
        try:
            code = process.wait(300)
        finally:
            process.kill()
        return Outcome(code, process.stdout_text() + process.stderr_text())

    def emulated(self, place: tuple[str, str]) -> list[str]:
        emulator, cpu = place
        return [EMULATORS[emulator], "-L", ARM_SYSROOT, "-cpu", cpu] if self.emulators else []

    def run(self, place: tuple[str, str], *words: str, program: str = "driver") -> Outcome:
        return self.execute([*self.emulated(place), f"./{program}", *words])


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    engine = choose_engine(say=lambda _: None)
    engine.prepare()
    out = tmp_path_factory.mktemp("counters")
    sources = (Mount(ROOT / "kernels" / "harness", "/lab/harness"), Mount(DATA, "/lab/data"))
    build = ["sh", "build.sh", "/lab/harness", "/lab/out"]
    log = out / "build.log"
    mounts = (*sources, Mount(out, "/lab/out", writable=True))
    assert engine.run(build, mounts=mounts, workdir="/lab/data", log=log) == 0, log.read_text()
    with engine.sandbox([Mount(out, "/lab/out")]) as sandbox:
        yield Driver(engine, sandbox)


def call_specs() -> list[str]:
    """Each call of the table another number of times, so that no two counts can be mistaken."""
    return [f"{name}:{argument}:{times}" for times, (name, argument, _, _) in enumerate(CALLS, 1)]


def expected_counts() -> dict[str, int]:
    counts: dict[str, int] = {}
    for times, (_, _, _, counted) in enumerate(CALLS, 1):
        counts[counted] = counts.get(counted, 0) + times
    return counts


@pytest.mark.parametrize("place", PLACES, ids="/".join)
@pytest.mark.parametrize("program", ["driver", "linked"])
def test_counts_are_exact_and_results_unchanged(driver: Driver, place: tuple[str, str], program: str) -> None:
    module = "./entries.so" if program == "driver" else "self"
    outcome = driver.run(place, "calls", module, *call_specs(), program=program)
    assert outcome.code == 0, outcome.text
    assert outcome.ran == expected_counts()
    assert outcome.get("differs") == []
    assert outcome.get("value")[: len(CALLS)] == [f"{name} {result}" for name, _, result, _ in CALLS]


def test_functions_that_cannot_be_counted_are_listed_with_their_reason(driver: Driver) -> None:
    outcome = driver.run(PLACES[0], "calls", "./entries.so")
    refused = dict(line.split(" ", 1) for line in outcome.get("refused"))
    assert refused.keys() == REFUSED.keys()
    for name, reason in REFUSED.items():
        assert reason in refused[name]
    assert outcome.get("kernels") == ["32"]
    assert outcome.ran == {}


@pytest.mark.parametrize("place", PLACES, ids="/".join)
def test_registers_and_flags_reach_the_function_unchanged(driver: Driver, place: tuple[str, str]) -> None:
    outcome = driver.run(place, "calls", "./entries.so", "call_state:3:4", "call_state:1000:5")
    assert outcome.get("differs") == []
    assert outcome.ran == {"kai_run_state": 9}
    assert outcome.get("value")[0] != outcome.get("value")[1]


def test_recursion_and_tail_calls_count_entries(driver: Driver) -> None:
    outcome = driver.run(PLACES[1], "calls", "./entries.so", "kai_run_recursive:4:2", "kai_run_tail:1:3")
    assert outcome.ran == {"kai_run_recursive": 10, "kai_run_tail": 3, "kai_run_plain": 3}
    assert outcome.get("differs") == []


@pytest.mark.parametrize("place", PLACES[:3], ids="/".join)
def test_no_count_is_lost_between_threads(driver: Driver, place: tuple[str, str]) -> None:
    outcome = driver.run(place, "threads", "./entries.so", "kai_run_plain", "4", "5000")
    assert outcome.ran == {"kai_run_plain": 20000}


@pytest.mark.parametrize("emulator", EMULATORS)
@pytest.mark.parametrize("length", [128, 512])
def test_a_function_entered_in_streaming_mode(driver: Driver, emulator: str, length: int) -> None:
    if not driver.emulators:
        pytest.skip("the streaming length of hardware cannot be chosen")
    outcome = driver.run((emulator, f"max,sme_fa64=off,sme{length}=on"), "streaming", "./streaming.so", "3")
    assert outcome.get("state") == [f"same {length // 8} 8"] * 3  # byte 1 of ZA row 0 is 3 + 5
    assert outcome.ran == {"kai_kernel_streaming": 3}


def test_branch_target_protection_stays_in_force(driver: Driver) -> None:
    place = ("qemu-11.1", "max")
    counted = driver.run(place, "calls", "./guarded.so", "kai_run_bti:1:2", "kai_run_pac:1:3")
    assert counted.ran == {"kai_run_bti": 2, "kai_run_pac": 3}
    caught = driver.run(place, "threads", "./guarded.so", "kai_run_plain", "1", "1")
    assert caught.code == 128 + 4, "an indirect call to code without a landing pad must still be illegal"


def test_every_start_at_a_random_address_counts(driver: Driver) -> None:
    starts = 200
    start = " ".join([*driver.emulated(PLACES[1]), "./driver threads ./entries.so kai_run_plain 1 7"])
    script = f"i=0; while [ $i -lt {starts} ]; do {start} || exit; i=$((i+1)); done"
    outcome = driver.execute(["sh", "-c", script])
    assert outcome.code == 0, outcome.text
    assert outcome.get("ran") == ["kai_run_plain 7"] * starts
    assert len(set(outcome.get("address"))) > starts // 2


def test_one_free_page_within_reach_is_found(driver: Driver) -> None:
    outcome = driver.run(PLACES[1], "crowded", "./entries.so", "kai_run_plain", "1")
    assert outcome.ran == {"kai_run_plain": 1}


def test_no_room_within_reach_is_an_error(driver: Driver) -> None:
    outcome = driver.run(PLACES[1], "crowded", "./entries.so", "kai_run_plain", "0")
    assert outcome.code == 2
    assert outcome.get("error") == [
        "no free memory within branch reach (128 MiB) of the kernel code for its counters"
    ]
    assert outcome.ran == {}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("calls", "./none.so"), "names no kernel function in its symbol table"),
        (("calls", "self"), "names no kernel function in its symbol table"),
        (("install", "./entries.so"), "is not loaded into this process"),
        (("install", "./missing.so"), "cannot be read"),
        (("install", "./build.log"), "cannot be read"),
        (("install", "/bin/true"), "is no little-endian AArch64 ELF file"),
        (("altered", "./entries.so", "kai_run_plain"), "is not what the process has loaded"),
    ],
)
def test_what_cannot_be_counted_is_refused(driver: Driver, words: tuple[str, ...], problem: str) -> None:
    outcome = driver.run(PLACES[1], *words)
    assert outcome.code == 2
    assert problem in outcome.get("error")[0]
    assert outcome.get("kernels") == []


def test_a_stripped_module_counts_what_it_exports(driver: Driver) -> None:
    outcome = driver.run(PLACES[1], "calls", "./stripped.so", "kai_run_plain:5:3", "twin_a:1:4")
    assert outcome.ran == {"kai_run_plain": 3}
