"""Who may import what, how long a module may be, who prints: the house rules that a program can see."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from tests.checkout import checkout

MOST_LINES = 400
# Modules over the limit, which are to be split, and how far they may go until then. Nothing may be added.
TOO_LONG: dict[str, int] = {}

OWNERS = {
    "torch": (
        "tuner.autotuning.*",
        "tuner.operators.*",
        "tuner.capturing.kernel_calls",
        "tuner.capturing.losses",
        "tuner.capturing.problems_of",
        "tuner.capturing.torch_calls",
        "tuner.checking",
        "tuner.comparison",
        "tuner.compiling",
        "tuner.diagnosis",
        "tuner.evaluating",
        "tuner.exponential_error",
        "tuner.family_check",
        "tuner.gpu_desk",
        "tuner.graphs",
        "tuner.guarded",
        "tuner.interpreter",
        "tuner.launches",
        "tuner.nvml",
        "tuner.own_operators.bound",
        "tuner.own_operators.functions",
        "tuner.own_operators.inputs",
        "tuner.own_operators.rehearsal",
        "tuner.own_operators.wrong_answers",
        "tuner.far_tensors",
        "tuner.dispatch_mode",
        "tuner.poisoned_allocations",
        "tuner.power",
        "tuner.probe",
        "tuner.reading",
        "tuner.reference_cache",
        "tuner.search.valid_sampler",  # whether what the gp sampler needs is there
        "tuner.timing",
        "tuner.worker.zygote",
    ),
    "triton": (
        "tuner.capturing.kernel_calls",
        "tuner.autotuning.*",
        "tuner.compiling",
        "tuner.exponential_error",
        "tuner.interpreter",
        "tuner.kernel_cache",  # loaded by Triton itself
        "tuner.machine",  # in a job that runs in a worker
        "tuner.smoke_compile",
        "tuner.worker.zygote",
    ),
    "scipy": ("tuner.search.choosing", "tuner.search.surrogate", "tuner.search.valid_sampler"),
    "optuna": ("tuner.search.*",),
    "sqlalchemy": ("tuner.store.*", "tuner.search.storage", "tuner.exports.reading"),
    "alembic": ("tuner.store.migrating",),
    "libcst": (
        "tuner.constants",
        "tuner.fixing",
        "tuner.fold",
        "tuner.optional_parameters",
        "tuner.rendering",
        "tuner.statements",
        "tuner.switches",
        "tuner.triton_api",
        "tuner.unused",
    ),
    "jinja2": ("tuner.exports.templating",),
    "typer": ("tuner.cli.*",),
    "rich": ("tuner.cli.output", "tuner.cli.tables", "tuner.progress", "tuner.progress_many"),
}
"""The modules (patterns) that may import a heavy library, at the top or inside a function."""

PACKAGE_MAY_IMPORT = {
    # What the modules of a package may import from the other packages.
    "autotuning": (
        "tuner.operators.reference",
        "tuner.search",
        "tuner.search.base",
        "tuner.store.location",
        "tuner.store.records",
        "tuner.store.store",
        "tuner.worker.messages",
        "tuner.worker.pool",
        "tuner.worker.zygote",
    ),
    "operators": (),
    "replay": ("tuner.search",),
    "worker": ("tuner.own_operators.jobs",),  # a job brings the operators that it speaks of
    "own_operators": ("tuner.operators", "tuner.operators.*", "tuner.worker.messages"),
    "store": (),
    "search": ("tuner.store.network_files", "tuner.store.owner"),
    "exports": (
        "tuner.operators",
        "tuner.own_operators.*",
        "tuner.store.location",
        "tuner.store.models",
        "tuner.store.records",
        "tuner.store.store",
    ),
}

PRINTS = {
    "tuner.worker.zygote",  # into its log
}

# Words that only make sense where the project is written. They are put together here, so that this file has none.
FORBIDDEN = [
    rf"(?<![\w.]){'/'}work(?:/|\b)",
    f"issue{' '}#",
    *(f"{name}[.]md" for name in ("CHECK", "DESIGN", "TIMING", "STYLE", "EXPORTS", "FIELD_NOTES")),
]
TEXTS = ("*.py", "*.md", "*.yaml", "*.yml", "*.toml", "*.txt", "*.sql", "*.ini", "*.mako", "Makefile", ".ci/run")
FOLDERS = ("tuner", "variants", "search_spaces", "db", "tests", "benchmarks", "docs", "examples", ".ci")


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by name."""
    root = checkout() / "tuner"
    found = {}
    for path in sorted(root.rglob("*.py")):
        name = ".".join(("tuner", *path.relative_to(root).with_suffix("").parts))
        found[name.removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(tree: ast.Module) -> set[str]:
    """What is imported when the module runs, also inside functions; ``from a import b`` is ``a.b`` and ``a``."""
    found: set[str] = set()
    for node in running(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and node.level == 0, "imports are absolute"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def running(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker reads."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from running(child)


def own_imports(name: str) -> set[str]:
    """The package's own modules that ``name`` imports."""
    given = imported(modules()[name])
    finer = {parent for parent in given if any(other.startswith(f"{parent}.") for other in given & modules().keys())}
    return (given & modules().keys()) - finer - {name}


def package_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and (checkout() / "tuner" / parts[1]).is_dir() else ""


@pytest.mark.parametrize("library", OWNERS)
def test_a_heavy_library_is_imported_by_its_owners_only(library):
    users = {n for n, tree in modules().items() if any(i.split(".")[0] == library for i in imported(tree))}
    strangers = {n for n in users if not any(fnmatchcase(n, pattern) for pattern in OWNERS[library])}
    idle = {p for p in OWNERS[library] if not any(fnmatchcase(n, p) for n in users)}
    assert strangers == set(), f"{library} has new importers; keep it where it is, or name them in OWNERS"
    assert idle == set(), f"these need not be owners of {library} any more"


@pytest.mark.parametrize("package", PACKAGE_MAY_IMPORT)
def test_a_package_imports_no_other_package_but_what_it_is_built_on(package):
    allowed = PACKAGE_MAY_IMPORT[package]
    for name in [n for n in modules() if package_of(n) == package]:
        others = {i for i in own_imports(name) if package_of(i) not in ("", package)}
        assert all(any(fnmatchcase(other, pattern) for pattern in allowed) for other in others), name


def test_nothing_imports_the_command_line():
    users = {n for n in modules() if any(i.startswith("tuner.cli") for i in own_imports(n))}
    assert {n for n in users if not n.startswith("tuner.cli")} == {"tuner.__main__"}


def test_no_modules_import_one_another_in_a_circle():
    # The command line's own package holds its constants, and loads the application when it runs.
    graph = {n: own_imports(n) - {"tuner.cli"} for n in modules()}
    while graph:
        leaves = {n for n, needs in graph.items() if not needs & graph.keys()}
        assert leaves, f"a circle among {sorted(graph)}"
        graph = {n: needs for n, needs in graph.items() if n not in leaves}


@pytest.mark.parametrize("folder", ["variants", "search_spaces", "db"])
def test_content_folders_import_nothing_of_the_package(folder):
    for path in sorted((checkout() / folder).rglob("*.py")):
        found = imported(ast.parse(path.read_text(encoding="utf-8")))
        assert not any(name.split(".")[0] == "tuner" for name in found), path


def test_no_module_is_longer_than_a_sitting():
    lengths = {}
    for path in sorted((checkout() / "tuner").rglob("*.py")):
        name = ".".join(path.relative_to(checkout()).with_suffix("").parts)
        lengths[name] = len(path.read_text(encoding="utf-8").splitlines())
    over = {name: lines for name, lines in lengths.items() if lines > MOST_LINES}
    assert over.keys() <= TOO_LONG.keys(), "split it by idea"
    assert all(lines <= TOO_LONG[name] for name, lines in over.items()), "it has grown; split it"
    assert TOO_LONG.keys() <= over.keys(), "it is short enough now: take it off TOO_LONG"


def test_nothing_below_the_command_line_prints():
    printing = set()
    for name, tree in modules().items():
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
        if any(isinstance(c.func, ast.Name) and c.func.id == "print" for c in calls) and package_of(name) != "cli":
            printing.add(name)
    assert printing == PRINTS


def texts() -> Iterator[Path]:
    root = checkout()
    for pattern in TEXTS:
        yield from root.glob(pattern)
        for folder in FOLDERS:
            yield from (root / folder).rglob(pattern)
    yield from (root / ".ci").glob("*")


def test_no_text_speaks_of_where_it_was_written():
    found = []
    for path in sorted(set(texts())):
        text = path.read_text(encoding="utf-8")
        found += [f"{path}: {match[0]}" for words in FORBIDDEN for match in re.finditer(words, text)]
    assert found == []
