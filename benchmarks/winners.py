"""A stored winner as a function that can be called: its standalone source, loaded as a user would load it."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import tuner
from tuner.problem import Problem


def load_winner(problem: Problem, db: str, folder: Path | None = None) -> tuple[ModuleType, str]:
    """The module of the winner's standalone source, and the winner's label."""
    winner = tuner.best(problem, db=db)
    assert winner is not None, f"nothing is stored for {problem.label}"
    source = tuner.render(problem, best=True, db=db)
    folder = folder or Path(tempfile.mkdtemp(prefix="tuner-winner-"))
    path = folder / f"winner_{problem.key}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, winner.config.label


def caller(module: ModuleType, **tensors: object) -> Callable[[], None]:
    """The winner's launch on these tensors and scalars."""
    config = module.CONFIG
    return lambda: module.launch(**tensors, **config)
