"""The names that people import."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import tuner
from tests.programs import environment
from tuner import api, space_recording, study_importance, tuned_coverage, upkeep
from tuner.autotuning import decorator
from tuner.capturing import session
from tuner.exports import public
from tuner.replay import public as replaying


def test_the_names_are_sorted_and_every_one_is_there():
    assert tuner.__all__ == sorted(tuner.__all__)
    assert len(set(tuner.__all__)) == len(tuner.__all__)
    assert all(getattr(tuner, name) is not None for name in tuner.__all__)
    assert dir(tuner) == tuner.__all__


def test_every_public_function_of_the_api_is_among_the_names():
    functions = {
        name
        for module in (
            api,
            decorator,
            public,
            replaying,
            space_recording,
            study_importance,
            session,
            tuned_coverage,
            upkeep,
        )
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }
    assert functions == {name for name in tuner.__all__ if name.islower()}


def test_every_public_function_and_class_says_what_it_does():
    assert [name for name in tuner.__all__ if not (getattr(tuner, name).__doc__ or "").strip()] == []


def test_a_name_stays_what_it_is_whatever_is_imported_beside_it(tmp_path):
    # A submodule of the same name would take the function's place in the package.
    code = (
        "import importlib, pkgutil, tuner\n"
        "taken = [m.name for m in pkgutil.iter_modules(tuner.__path__) if m.name in tuner.__all__]\n"
        "import tuner.api, tuner.tickets, tuner.rendering\n"
        "print(taken, callable(tuner.render), callable(tuner.tune), callable(tuner.time))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), cwd=tmp_path, check=True
    )
    assert done.stdout == "[] True True True\n"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'tuner' has no attribute 'tuen'"):
        tuner.tuen  # noqa: B018


def test_the_api_itself_loads_neither_torch_nor_triton_nor_optuna(tmp_path):
    heavy = ("torch", "triton", "optuna", "alembic")
    code = f"import sys, tuner.api; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), cwd=tmp_path, check=True
    )
    assert done.stdout == "[]\n"
