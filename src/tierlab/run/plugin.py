# SPDX-License-Identifier: MIT
"""pytest plugin: `pytest matrix.yaml -n 2 -k neoverse-n1`. Lanes are items; each cell is reported by itself.

A matrix file is collected only where it is named on the command line. Without a prepared plan the plugin
prepares one (image, builds) in the controlling process; xdist's workers get its path.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tierlab.errors import ExitCode, TierlabError, UsageError
from tierlab.run.lifeline import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierlab.cells.model import Cell, LaneKey
    from tierlab.cells.selection import Selection
    from tierlab.run.record import CellRecord
    from tierlab.run.workbench import Workbench

BENCH = pytest.StashKey["Workbench"]()
OWN_RUN = pytest.StashKey[Path]()
"""The run's folder, where pytest itself prepared the run (and somebody has to write its reports)."""

ASKS = pytest.StashKey[bool]()
"""Set where the process that collects must note which cells were asked for: `-k` may choose among them."""

PLAN_INPUT, OWN_INPUT = "tierlab_plan", "tierlab_own"
SHOWN_FAILURES = 20
SUFFIXES = (".yaml", ".yml")


class LaneFailure(Exception):
    """Some cells of a lane are not as expected; the message names them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tierlab", "tierlab: cells of a matrix file")
    group.addoption("--tierlab-plan", metavar="FILE", help="a prepared run (plan.json)")
    group.addoption("--preset", default="default", help="preset of the matrix file (default: default)")
    group.addoption("--engine", help="docker, rootfs or native")
    group.addoption("--cell-seed", type=int, help="seed of all inputs")
    group.addoption("--only", action="append", default=[], help="glob on cell ids; repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """In the controlling process: prepare a run if a matrix file is asked for and none is prepared."""
    if hasattr(config, "workerinput"):
        config.option.tierlab_plan = config.workerinput.get(PLAN_INPUT)
        if OWN_INPUT in config.workerinput:
            config.stash[ASKS] = True
        if config.option.tierlab_plan:
            die_with_parent()
        return
    named = [path for path in _named(config) if path.suffix in SUFFIXES]
    if not named:
        return
    # Inherited by the workers, read when NumPy is first imported: small products, many workers.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        _make_ready(config, named)
    except TierlabError as error:
        pytest.exit(f"tierlab: {error}", returncode=int(error.exit_code))


def _make_ready(config: pytest.Config, named: list[Path]) -> None:
    """All that can be wrong is found here: an error while pytest collects would end with code 1 or 2."""
    from tierlab.cells.expand import expand
    from tierlab.cells.load import load_matrix
    from tierlab.run.plan import read_plan

    if config.option.tierlab_plan:
        read_plan(Path(config.option.tierlab_plan))
    elif config.option.collectonly:
        for path in named:
            list(expand(load_matrix(path), _selection(config)))
    else:
        plan = _prepare(config, named)
        config.option.tierlab_plan = str(plan)
        config.stash[OWN_RUN] = plan.parent
        config.stash[ASKS] = True


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker where the plan is: xdist hands on the command line's words, not what became of them."""
    if node.config.option.tierlab_plan:
        node.workerinput[PLAN_INPUT] = str(Path(node.config.option.tierlab_plan).absolute())
        if OWN_RUN in node.config.stash:
            node.workerinput[OWN_INPUT] = True


def _named(config: pytest.Config) -> list[Path]:
    return [Path(config.invocation_params.dir, arg.split("::")[0]).resolve() for arg in config.args]


def _selection(config: pytest.Config) -> Selection:
    from tierlab.cells.selection import Selection

    return Selection(preset=config.option.preset, only=tuple(config.option.only))


def _prepare(config: pytest.Config, named: list[Path]) -> Path:
    from tierlab.run.plan import read_plan
    from tierlab.run.prepare import Wish, prepare
    from tierlab.run.recall import recall

    if len(named) > 1:
        msg = f"one matrix file a run, {len(named)} were given; nothing was run. Name one"
        raise UsageError(msg)
    option = config.option
    wish = Wish(matrix=named[0], selection=_selection(config), engine=option.engine, seed=option.cell_seed)
    plan = prepare(wish, note_cells=False)
    # Builds that do not compile have no lanes, but their cells need an answer.
    recall(replace(read_plan(plan), fresh=True))
    return plan


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    config = parent.config
    if file_path.suffix not in SUFFIXES or file_path.resolve() not in _named(config):
        return None
    return MatrixFile.from_parent(parent, path=file_path)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note the cells, so that one without an answer is `untested`. All workers collect and write the same."""
    if ASKS not in session.config.stash:
        return
    from tierlab.run.store import CELLS, Store, read_records

    run_dir = Path(session.config.option.tierlab_plan).parent
    if (run_dir / CELLS).exists():
        return
    items = [item for item in session.items if type(item) is LaneItem]
    with Store(run_dir) as store:
        asked = [*read_records(run_dir), *(cell.id for item in items for cell in item.cells)]
        store.write_cells(dict.fromkeys(asked))


class MatrixFile(pytest.File):
    """A matrix file: collects one item for each lane."""

    def collect(self) -> Iterator[LaneItem]:
        from tierlab.cells.expand import lanes
        from tierlab.cells.load import load_matrix
        from tierlab.run.plan import plan_lanes, read_plan
        from tierlab.run.recall import canary_lanes

        option = self.config.option
        canaries: list[tuple[LaneKey, tuple[Cell, ...]]] = []
        try:
            if option.tierlab_plan:
                plan = read_plan(Path(option.tierlab_plan))
                matrix = load_matrix(plan.matrix_file)
                # What is answered already is left to the lane: every worker must collect the same items.
                found = [lane for lane in plan_lanes(matrix, plan) if lane[0].build in plan.builds]
                canaries = [lane for lane in canary_lanes(matrix, plan) if lane[0].build in plan.builds]
            else:
                found = list(lanes(load_matrix(self.path), _selection(self.config)))
        except TierlabError as error:
            pytest.exit(f"tierlab: {error}", returncode=int(error.exit_code))
        for key, cells in sorted(found, key=lambda lane: -len(lane[1])):
            yield LaneItem.from_parent(self, name=key.id, key=key, cells=cells)
        for key, cells in canaries:
            yield CanaryItem.from_parent(self, name=f"excluded/{key.id}", key=key, cells=cells)


class LaneItem(pytest.Item):
    """One lane; passes if every cell is as expected."""

    def __init__(self, *, key: LaneKey, cells: tuple[Cell, ...], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.key = key
        self.cells = cells

    def runtest(self) -> None:
        from tierlab.run.lane import LaneRunner

        unexpected: list[CellRecord] = []

        def emit(record: CellRecord) -> None:
            if not record.as_expected:
                unexpected.append(record)
            self._report(record)

        LaneRunner(_bench(self.config), self.key, self.cells, emit).run()
        if unexpected:
            shown = [
                f"{record.verdict}: {record.cell}: {record.detail}" for record in unexpected[:SHOWN_FAILURES]
            ]
            if len(unexpected) > SHOWN_FAILURES:
                shown.append(f"and {len(unexpected) - SHOWN_FAILURES} more")
            raise LaneFailure("\n".join(shown))

    def _report(self, record: CellRecord) -> None:
        """Let pytest count the cell. xdist wants the item's own node id; the location names the cell."""
        if record.as_expected:
            outcome, text = "passed", None
        else:
            outcome, text = "failed", f"{record.verdict}, expected {record.expected}: {record.detail}"
        report = pytest.TestReport(
            nodeid=self.nodeid,
            location=(str(self.path), None, record.cell),
            keywords={},
            outcome=outcome,  # type: ignore[arg-type]
            longrepr=text,
            when="call",
            duration=record.wall_ms / 1000,
        )
        self.ihook.pytest_runtest_logreport(report=report)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str | Any:
        if isinstance(excinfo.value, (LaneFailure, TierlabError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.key.id} ({len(self.cells)} cells)"


class CanaryItem(LaneItem):
    """Excluded cells that are tried all the same; whatever they do, it is no failure (see canary_notes)."""

    def runtest(self) -> None:
        from tierlab.run.lane import LaneRunner
        from tierlab.run.store import CANARIES, Store

        bench = _bench(self.config)
        with Store(bench.plan.run_dir, CANARIES) as store:
            LaneRunner(bench, self.key, self.cells, lambda _: None, store).run()


def _bench(config: pytest.Config) -> Workbench:
    """The process's workbench, opened with its first lane."""
    from tierlab.run.plan import read_plan
    from tierlab.run.workbench import Workbench

    if BENCH not in config.stash:
        config.stash[BENCH] = Workbench(read_plan(Path(config.option.tierlab_plan)))
    return config.stash[BENCH]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Close this process's workbench; a run of pytest's own ends with the lab's exit code."""
    bench = session.config.stash.get(BENCH, None)
    if bench is not None:
        bench.close()
    yield
    run_dir = session.config.stash.get(OWN_RUN, None)
    if run_dir is not None:
        from tierlab.run.store import read_run_info

        code = read_run_info(run_dir).exit_code
        session.exitstatus = int(ExitCode.UNDETERMINED) if code is None else code
