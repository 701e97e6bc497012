# SPDX-License-Identifier: MIT
"""What a person types: `invoke --list`, `invoke --help matrix`. Each task is one call into `tierlab.cli`."""

from __future__ import annotations

from functools import partial

from invoke.context import Context
from invoke.tasks import task as invoke_task

from tierlab import cli

cli.install_exit_contract()
cli.install_file_arguments()

# Options have one spelling, the long one; Invoke would also hand out letters, `-h` (help!) to --shard.
task = partial(invoke_task, auto_shortflags=False)

# Invoke fills an iterable option with a list and leaves None where it was not given.
Many = list[str] | None
REPEATABLE = ["only", "profile", "type", "path", "suite"]
BUILDS = ["build", "llama-cpp", "sdist"]
SELECTION_HELP = {
    "preset": "Preset of matrix.yaml: quick, default or full.",
    "only": "Glob on cell ids, e.g. 'ggml.mul_mat/iq4_*/*'; may be given several times.",
    "profile": "Profile name or glob; may be given several times.",
    "type": "Weight type or glob; may be given several times.",
    "path": "default, repack or kleidiai; may be given several times.",
    "suite": "Suite name or glob; may be given several times.",
    "build": "Comma-separated builds: stock, patched, sdist-VERSION (user is implied by --llama-cpp).",
    "llama-cpp": "Path of a llama.cpp tree to test as build 'user'; it is never written to.",
    "sdist": "Version of the published source package to test as build 'sdist-VERSION', like 0.3.16.",
    "shard": "i/n: the i-th of n disjoint parts of the selection.",
    "file": "The matrix file.",
}
BUILD_HELP = {
    "march": "Build one backend with this -march instead of all loadable variants.",
    "assertions": "Leave the kernels' asserts in.",
    "llamafile": "Let tinyBLAS take products away from ggml's own kernels.",
    "openmp": "Build without OpenMP: ggml's own threads and barrier.",
    "kleidiai": "Build without KleidiAI.",
}
ENGINE_HELP = {"engine": "docker, rootfs or native; chosen by itself where absent."}
RUN_HELP = {
    **ENGINE_HELP,
    "seed": "Seed of all inputs; printed in every report.",
    "jobs": "Lanes that run at once (default: one for each processor).",
    "fresh": "Run every cell again, cached verdicts or not.",
    "reports": "Folder that receives the run's folder.",
}


COMPARE_HELP = {
    "compare": "Hold the builds against each other: what changed, and that no type changed which may not.",
    "each-patch": "Compare builds that add the patch series one by one: stock, patched-1, … patched.",
}


@task(default=True, iterable=REPEATABLE, help={**SELECTION_HELP, **BUILD_HELP, **RUN_HELP, **COMPARE_HELP})
def matrix(
    _: Context,
    preset: str = "default",
    only: Many = None,
    profile: Many = None,
    type: Many = None,
    path: Many = None,
    suite: Many = None,
    build: str = "",
    llama_cpp: str = "",
    sdist: str = "",
    march: str = "",
    assertions: bool = False,
    llamafile: bool = False,
    openmp: bool = True,
    kleidiai: bool = True,
    shard: str = "",
    file: str = "matrix.yaml",
    engine: str = "",
    seed: str = "",
    jobs: str = "",
    fresh: bool = False,
    reports: str = "reports",
    compare: bool = False,
    each_patch: bool = False,
) -> None:
    """Build the image and the kernels, run the matrix, write the report."""
    options = cli.build_options(march, assertions, llamafile, openmp, kleidiai)
    builds = (build, llama_cpp, sdist, options)
    selection = cli.selection(preset, only, profile, type, path, suite, builds, shard, file)
    cli.finish(cli.matrix, selection, engine, seed, jobs, fresh, reports, compare, each_patch)


@task(iterable=REPEATABLE, help={**SELECTION_HELP, **BUILD_HELP, "count": "Print only the numbers."})
def cells(
    _: Context,
    preset: str = "default",
    only: Many = None,
    profile: Many = None,
    type: Many = None,
    path: Many = None,
    suite: Many = None,
    build: str = "",
    llama_cpp: str = "",
    sdist: str = "",
    march: str = "",
    assertions: bool = False,
    llamafile: bool = False,
    openmp: bool = True,
    kleidiai: bool = True,
    shard: str = "",
    file: str = "matrix.yaml",
    count: bool = False,
) -> None:
    """List the cells that `matrix` would run, without running them."""
    options = cli.build_options(march, assertions, llamafile, openmp, kleidiai)
    builds = (build, llama_cpp, sdist, options)
    selection = cli.selection(preset, only, profile, type, path, suite, builds, shard, file)
    cli.finish(cli.cells, selection, count)


@task(help=ENGINE_HELP)
def image(_: Context, engine: str = "") -> None:
    """Build the toolchain image, or say that it is up to date."""
    cli.finish(cli.image, engine)


@task(help={**ENGINE_HELP, **{name: SELECTION_HELP[name] for name in BUILDS}, **BUILD_HELP})
def build(
    _: Context,
    build: str = "",
    llama_cpp: str = "",
    sdist: str = "",
    engine: str = "",
    march: str = "",
    assertions: bool = False,
    llamafile: bool = False,
    openmp: bool = True,
    kleidiai: bool = True,
) -> None:
    """Fetch, patch and compile llama.cpp and the harness."""
    options = cli.build_options(march, assertions, llamafile, openmp, kleidiai)
    cli.finish(cli.build, cli.build_wish(build, llama_cpp, sdist, options), llama_cpp, engine)


@task(help={"run": "Run folder to render again, or several, comma-separated, to merge into one."})
def report(_: Context, run: str = "reports/latest") -> None:
    """Write the reports of a run again, or merge the runs of several shards into one."""
    cli.finish(cli.report, run)


@task(help=ENGINE_HELP)
def doctor(_: Context, engine: str = "") -> None:
    """Say what is found on this machine, what is missing and what to do about it."""
    cli.finish(cli.doctor, engine)


@task(
    iterable=["file"],
    help={
        "file": "A file; plain arguments are files too: invoke scan a.so b.deb.",
        "json": "Write all to it.",
    },
)
def scan(_: Context, file: Many = None, json: str = "") -> None:
    """Say what is compiled into Arm binaries that others ship: .so, .a, .deb, wheels, APKs, archives."""
    cli.finish(cli.scan, file or [], json)


@task(
    iterable=["file", "require", "profile"],
    help={
        **ENGINE_HELP,
        "file": "A model file; plain arguments are files too: invoke gguf a.gguf b.gguf.",
        "require": "What the file must hold, e.g. 'ffn>=90% iq4_xs'; may be given several times.",
        "json": "Write all to it.",
        "markdown": "Write the printed text to it.",
        "sha256": "Read every byte for the file's digest (default); without, only headers are read.",
        "coverage": "Ask the built library which path takes each weight on each profile.",
        "profile": "With --coverage: profile name or glob; may be given several times.",
        "reports": RUN_HELP["reports"],
        "matrix": SELECTION_HELP["file"],
    },
)
def gguf(
    _: Context,
    file: Many = None,
    require: Many = None,
    json: str = "",
    markdown: str = "",
    sha256: bool = True,
    coverage: bool = False,
    profile: Many = None,
    engine: str = "",
    reports: str = "reports",
    matrix: str = "matrix.yaml",
) -> None:
    """Say what model files really hold, and whether their labels are true; `gguf diff A B` compares two."""
    wanted = cli.Wanted(tuple(profile or ()), engine, reports, matrix) if coverage else None
    cli.finish(cli.gguf, file or [], require, cli.Outputs(json, markdown), sha256, wanted)


@task(help={"unit": "Only what needs no engine.", "k": "Passed to pytest's -k."})
def test(_: Context, unit: bool = False, k: str = "") -> None:
    """Run the project's own checks: ruff, mypy, unit, integration and must-fail tests."""
    cli.finish(cli.test, unit, k)


@task(help={"what": "builds, verdicts, reports or all (that also drops the image and the sources)."})
def clean(_: Context, what: str = "builds") -> None:
    """Delete caches or reports; --what says which."""
    cli.finish(cli.clean, what)


DISPATCH_HELP = {**ENGINE_HELP, "reports": RUN_HELP["reports"], "file": SELECTION_HELP["file"]}


@task(positional=["name"], help={**DISPATCH_HELP, "name": "A product, like graviton3; `list` shows all."})
def chip(
    _: Context,
    name: str,
    engine: str = "",
    reports: str = "reports",
    file: str = "matrix.yaml",
) -> None:
    """Say what llama.cpp does on a product: the variant, and each type's path and kernels, as executed."""
    cli.finish(cli.chip, name, engine, reports, file)


@task(
    iterable=["profile", "type"],
    help={**DISPATCH_HELP, "profile": SELECTION_HELP["profile"], "type": SELECTION_HELP["type"]},
)
def claims(
    _: Context,
    profile: Many = None,
    type: Many = None,
    engine: str = "",
    reports: str = "reports",
    file: str = "matrix.yaml",
) -> None:
    """Map which fast path takes which type and operation where, with the source lines that decide it."""
    cli.finish(cli.claims, profile, type, engine, reports, file)


@task(
    iterable=["profile", "variant"],
    help={
        **DISPATCH_HELP,
        "profile": SELECTION_HELP["profile"],
        "variant": "Variant to force, or a glob.",
        "android": "Compile and force the Android set too.",
    },
)
def variants(
    _: Context,
    profile: Many = None,
    variant: Many = None,
    android: bool = False,
    engine: str = "",
    reports: str = "reports",
    file: str = "matrix.yaml",
) -> None:
    """Say which of ggml's CPU backends each profile loads and why; force each where it runs and where not."""
    cli.finish(cli.variants, profile, variant, android, engine, reports, file)


@task(
    iterable=["profile", "type", "threads", "columns", "path", "env", "diff"],
    help={
        **DISPATCH_HELP,
        "profile": SELECTION_HELP["profile"],
        "type": SELECTION_HELP["type"],
        "path": "Ask these paths instead of the one that the program would choose; '*' for all.",
        "build": SELECTION_HELP["build"],
        "llama-cpp": SELECTION_HELP["llama-cpp"],
        "sdist": SELECTION_HELP["sdist"],
        "threads": "Thread counts, like 1,2,4.",
        "columns": "Numbers of activation rows, like 1,128: one is decode, more are prefill.",
        "rows": "Number of weight rows.",
        "full": "Every profile and type, more threads and columns.",
        "env": "NAME=VALUE for the processes under test, like GGML_KLEIDIAI_SME=2.",
        "repeat": "Executions of products that two kernels share: who gets which part is a matter of timing.",
        "rules": "A file of rules in place of the lab's own.",
        "diff": "OLD,NEW: compare two recorded runs instead of recording one ('latest' is the last).",
        "docs": "A page between whose marks the tables are written too.",
    },
)
def ledger(
    _: Context,
    profile: Many = None,
    type: Many = None,
    threads: Many = None,
    columns: Many = None,
    rows: str = "",
    path: Many = None,
    full: bool = False,
    env: Many = None,
    repeat: str = "",
    build: str = "",
    llama_cpp: str = "",
    sdist: str = "",
    rules: str = "",
    diff: Many = None,
    docs: str = "",
    engine: str = "",
    reports: str = "reports",
    file: str = "matrix.yaml",
) -> None:
    """Record what was announced, is compiled in and ran; test the rules of dispatch on every row."""
    lists = (profile, type, threads, columns, path, env, diff)
    words = cli.ledger_words(*lists, rows, repeat, full, build, llama_cpp, sdist, rules, docs)
    cli.finish(cli.ledger, words, engine, reports, file)


@task(
    iterable=["model", "type"],
    help={
        **DISPATCH_HELP,
        **{name: SELECTION_HELP[name] for name in BUILDS},
        "build": "The build whose kernels are modelled (default: patched).",
        "model": "A core that llvm-mca knows, or a glob: neoverse-n1, -n2, -v1, -v2.",
        "type": "iq4_xs, iq4_nl, q4_k or q4_0, or a glob.",
    },
)
def cost(
    _: Context,
    build: str = "",
    llama_cpp: str = "",
    sdist: str = "",
    model: Many = None,
    type: Many = None,
    engine: str = "",
    reports: str = "reports",
    file: str = "matrix.yaml",
) -> None:
    """Cycles a multiply-accumulate of the 4-bit kernels by a static model (llvm-mca); measures nothing."""
    wish = cli.build_wish(build, llama_cpp, sdist, ())
    cli.finish(cli.cost, wish, llama_cpp, model, type, engine, reports, file)
