"""A Python module that fills the cache of kernels under ``@triton.autotune``, in any library.

``Autotuner.cache`` is a dictionary from a call's key to a ``triton.Config`` (read in Triton 3.2 to 3.9): filled before
the first call, a tuned key launches and benchmarks nothing. It survives what Triton's own disk cache does not: a new
Triton, ptxas or candidate list.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from tuner.doctor import Check, Status
from tuner.errors import TunerError, UsageError
from tuner.exports.autotune_key import KEY_HELP, Tuned, tuned
from tuner.exports.device_names import model_name
from tuner.exports.entry import Selection
from tuner.exports.formats import Table
from tuner.exports.templating import check_python, fill
from tuner.shipped import DISTRIBUTION, version
from tuner.toolchain import triton_version

_DATA = ("KEYS", "TABLES")
_WARPS = (1, 2, 4, 8, 16, 32)


class TritonModule:
    """The format ``triton``."""

    name = "triton"
    summary = "a Python module that fills the cache of kernels under @triton.autotune"
    consumer = "Triton 3.2 to 3.9"
    single_file = True
    seed = False
    settings: Mapping[str, str] = {"key": KEY_HELP}

    def table(self, selection: Selection, settings: Mapping[str, str], name: str) -> Table:
        """One file for all devices and kernels."""
        module = name.removesuffix(".py")
        if not (name.endswith(".py") and module.isidentifier()):
            raise UsageError(f"--output: {name} cannot be imported; give a name such as tuned_configs.py")
        found, left_out = tuned(selection.entries, settings.get("key"), any_numbers=False)
        if not found:
            raise UsageError(f"no winner fits a kernel under an autotuner: {left_out[0].what}: {left_out[0].why}")
        keys: dict[str, tuple[str, ...]] = {}
        tables: dict[str, dict[str, list[Tuned]]] = {}
        for item in found:
            if keys.setdefault(item.kernel, item.key_names) != item.key_names:
                raise UsageError(f"the variants of {item.kernel} take other arguments; say which with --set key=...")
            tables.setdefault(model_name(item.entry.device), {}).setdefault(item.kernel, []).append(item)
        text = fill(
            "triton_module.py.j2",
            generator=f"{DISTRIBUTION} {version()}",
            module=module,
            keys=sorted(keys.items()),
            tables=[
                (device, [(kernel, [_row(item) for item in items]) for kernel, items in sorted(kernels.items())])
                for device, kernels in sorted(tables.items())
            ],
        )
        return Table(
            files={"": text},
            used=tuple((item.entry, f"{model_name(item.entry.device)}/{item.kernel}/{item.key}") for item in found),
            left_out=tuple(left_out),
            notes=(
                f"call {module}.preload(kernel) once; a key that is not in the table is tuned by Triton as before",
                "what follows from the shape (such as a block of a whole row) stays the caller's to pass",
            ),
        )

    def validate(self, files: Mapping[str, str]) -> None:
        """The data are literals, and every config is one that ``triton.Config`` takes."""
        for path, text in files.items():
            data = _data(path, check_python(path or "the module", text))
            for kernels in data["TABLES"].values():
                for kernel, rows in kernels.items():
                    for key, (kwargs, options) in rows.items():
                        _check_row(f"{kernel}{key}", len(data["KEYS"][kernel]), key, kwargs, options)

    def examine(self) -> tuple[Check, ...]:
        """Whether Triton is there, in a version whose autotuner was read."""
        try:
            found = triton_version()
        except TunerError as error:
            return (Check("triton", Status.MISSING, "not installed", str(error)),)
        numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
        if (3, 2) <= numbers <= (3, 9):
            return (Check("triton", Status.OK, found),)
        return (Check("triton", Status.WARNING, found, "its Autotuner was read in 3.2 to 3.9; try preload() on it"),)


def _row(item: Tuned) -> tuple[object, ...]:
    return item.key, dict(item.kwargs), {"num_warps": 4, "num_stages": 3, "num_ctas": 1, **item.options}


def _data(path: str, tree: ast.Module) -> dict[str, Any]:
    found = {
        target.id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in _DATA
    }
    if missing := [name for name in _DATA if name not in found]:
        raise UsageError(f"{path}: {missing[0]}: is missing; export it again")
    return found


def _check_row(
    where: str, names: int, key: tuple[object, ...], kwargs: Mapping[str, object], options: Mapping[str, object]
) -> None:
    if len(key) < names:
        raise UsageError(f"{where}: has fewer values than the key has names; export it again")
    if options.get("num_warps") not in _WARPS:
        raise UsageError(f"{where}: num_warps: must be one of {_WARPS}, but is {options.get('num_warps')!r}")
    bad = [name for name in kwargs if not name.isidentifier()]
    if bad:
        raise UsageError(f"{where}: {bad[0]!r} is no name of an argument")
