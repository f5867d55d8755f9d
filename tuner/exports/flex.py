"""A module that picks ``kernel_options`` for torch's FlexAttention.

Read from torch 2.13: the options are a dictionary for each call, of which no file is read; misspelt keys are accepted
in silence, and tiles must divide the sizes of the block mask.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from tuner.doctor import Check, Status
from tuner.errors import MissingError, UsageError
from tuner.exports.device_names import model_name
from tuner.exports.entry import Entry, LeftOut, Selection
from tuner.exports.formats import Table
from tuner.exports.losses import fit_nearest
from tuner.exports.seeds import Tiles, attention_tiles
from tuner.exports.templating import check_python, fill
from tuner.shipped import DISTRIBUTION, version
from tuner.toolchain import torch_version

_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
_AXES = ("head_dim", "q_len", "kv_len")


class FlexOptions:
    """The format ``flex``."""

    name = "flex"
    summary = "a Python module that picks kernel_options for torch's flex_attention"
    consumer = "torch 2.13 (flex_attention)"
    single_file = True
    seed = True
    settings: Mapping[str, str] = {}

    def table(self, selection: Selection, settings: Mapping[str, str], name: str) -> Table:
        """One file for all devices; of problems that differ in batch and heads the largest speaks for its shape."""
        module = name.removesuffix(".py")
        if not (name.endswith(".py") and module.isidentifier()):
            raise UsageError(f"--output: {name} cannot be imported; give a name such as flex_options.py")
        seeds = attention_tiles(selection.entries)
        found, left_out = seeds.found, list(seeds.left_out)
        if not found:
            raise UsageError(f"no winner has a place in flex_attention: {left_out[0].what}: {left_out[0].why}")
        tables: dict[tuple[str, str, bool], dict[tuple[int, ...], tuple[Entry, Tiles]]] = {}
        for entry, tiles in found:
            problem = entry.problem
            key = (model_name(entry.device), _DTYPES[problem.dtype], bool(problem.settings["causal"]))
            shape = tuple(problem.sizes[axis] for axis in _AXES)
            rows = tables.setdefault(key, {})
            other = rows.get(shape)
            if other is None or _work(other[0]) < _work(entry):
                rows[shape], dropped = (entry, tiles), other and other[0]
            else:
                dropped = entry
            if dropped is not None:
                what = f"{dropped.problem.label} on {dropped.device.name}"
                left_out.append(
                    LeftOut(what, "a call's options know nothing of batch and heads; a larger one is taken")
                )
        used = [(entry, key, shape) for key, rows in tables.items() for shape, (entry, _) in rows.items()]
        nearest = fit_nearest("attention_fwd", _AXES, [entry for entry, _, _ in used])
        text = fill(
            "flex_options.py.j2",
            generator=f"{DISTRIBUTION} {version()}",
            module=module,
            devices=sorted({re.sub(r"[^\w ().,+/-]", "_", key[0]) for key in tables}),
            weights=tuple(nearest.weights.values()),
            tables=[
                (key, [(shape, astuple(rows[shape][1])) for shape in sorted(rows)])
                for key, rows in sorted(tables.items())
            ],
        )
        return Table(
            files={"": text},
            used=tuple((entry, f"{key}{shape}") for entry, key, shape in used),
            left_out=tuple(left_out),
            losses=(nearest.loss,),
            notes=(
                *seeds.notes,
                f"pass kernel_options={module}.pick(device, dtype, head_dim, q_len, kv_len, causal)",
                "the loss is that of our kernel with these tiles, not of flex_attention's",
            ),
        )

    def validate(self, files: Mapping[str, str]) -> None:
        """Tiles are powers of two of at least 16, warps and stages numbers that Triton takes."""
        for path, text in files.items():
            tree = check_python(path or "the module", text)
            data: dict[Any, Any] | None = None
            for node in tree.body:
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TABLES":
                    data = ast.literal_eval(node.value)
            if not data:
                raise UsageError(f"{path}: TABLES: is missing; export it again")
            for key, rows in data.items():
                for shape, (block_m, block_n, warps, stages) in rows.items():
                    tiles = all(block >= 16 and block & (block - 1) == 0 for block in (block_m, block_n))
                    if not (tiles and warps in (1, 2, 4, 8, 16, 32) and stages >= 1):
                        raise UsageError(f"{path}: {key}{shape}: no kernel takes these tiles; export it again")

    def examine(self) -> tuple[Check, ...]:
        """Whether torch is there, in the version that was read."""
        try:
            found = torch_version()
        except MissingError as error:
            return (Check("torch", Status.MISSING, "not installed", str(error)),)
        if found.startswith("2.13"):
            return (Check("torch", Status.OK, found),)
        remedy = "flex_attention's options were read in 2.13, and are not yet promised to stay"
        return (Check("torch", Status.WARNING, found, remedy),)


def _work(entry: Entry) -> int:
    return entry.problem.sizes["batch"] * entry.problem.sizes["heads"]
