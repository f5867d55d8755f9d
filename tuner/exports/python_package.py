"""A Python package that needs torch and Triton only: the winning kernels, a look-up, and a callable an operator."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.doctor import Check, Status
from tuner.errors import MissingError, UsageError
from tuner.exports.device_names import arch, model_name
from tuner.exports.entry import Entry, LeftOut, Selection
from tuner.exports.formats import Table
from tuner.exports.losses import NearestRule, fit_nearest
from tuner.exports.own_callable import declared_as, own_callable, own_module, why_not
from tuner.exports.python_operators import CALLABLES, Callable
from tuner.exports.rule_source import RuleSource
from tuner.exports.templating import check_python, fill
from tuner.own_operators.files import bare_name
from tuner.shipped import DISTRIBUTION, version
from tuner.targets import ARCH_LIMITS
from tuner.toolchain import torch_version, triton_version

_IMPORTS = ("torch", "triton")
_STANDARD = ("hashlib", "importlib", "json", "math", "pathlib", "warnings", "os", "functools", "typing")


class PythonPackage:
    """The format ``python``."""

    name = "python"
    summary = "a package of the winning kernels with a look-up by device, dtype and shape"
    consumer = "torch 2.4 or newer, Triton 3.0 or newer"
    single_file = False
    seed = False
    settings: Mapping[str, str] = {}

    def table(self, selection: Selection, settings: Mapping[str, str], name: str) -> Table:
        """The package; one module a variant, named by its hash."""
        if not name.isidentifier():
            raise UsageError(f"--output: {name} cannot be imported; give a name such as tuned_kernels")
        entries, left_out = _callable_entries(selection.entries)
        if not entries:
            raise UsageError(f"no winner can be called: {left_out[0].what}: {left_out[0].why}")
        operators = sorted({entry.problem.operator for entry in entries})
        calls = {op: _call(op) for op in operators}
        nearest = {op: fit_nearest(op, calls[op].axes, entries) for op in operators}
        rules = {e.rules.key: RuleSource.of(e.rules, e.problem.operator) for e in entries if e.rules is not None}
        generator = f"{DISTRIBUTION} {version()}"
        rule_text = fill("python/_rules.py.j2", rules=[rules[key] for key in sorted(rules)])
        files = {f"variants/{_variant(entry)}.py": entry.variant.source for entry in entries}
        files["variants/__init__.py"] = '"""The winning variants, as they were checked and measured."""\n'
        files |= {f"_{bare_name(op)}.py": _module(op) for op in operators}
        files |= {
            "_rules.py": rule_text,
            "_device.py": fill("python/_device.py.j2", limits=_limits(selection)),
            "_lookup.py": fill("python/_lookup.py.j2"),
            "_operator.py": fill("python/_operator.py.j2"),
            "_tensors.py": fill("python/_tensors.py.j2"),
            "__init__.py": _init(generator, operators, nearest, entries),
            # What names the others is written last.
            "_tables.py": _tables(entries, nearest, rule_text),
        }
        return Table(
            files=files,
            used=tuple((entry, f"variants/{_variant(entry)}.py") for entry in entries),
            left_out=tuple(left_out),
            losses=tuple(nearest[op].loss for op in operators),
            notes=(f"import {name}; {name}.{bare_name(operators[0])}(...)",),
        )

    def validate(self, files: Mapping[str, str]) -> None:
        """Every file is Python that imports torch, Triton and the standard library only; every variant has launch()."""
        for path, text in files.items():
            tree = check_python(path, text)
            for module in _imported(tree):
                if module not in (*_IMPORTS, *_STANDARD):
                    raise UsageError(f"{path}: imports {module}, but such a package needs torch and Triton only")
            defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            if path.startswith("variants/") and not path.endswith("__init__.py") and "launch" not in defined:
                raise UsageError(f"{path}: has no launch(); export it again")

    def examine(self) -> tuple[Check, ...]:
        """Whether torch and Triton are there, and new enough."""
        checks = []
        for name, read, oldest in (("torch", torch_version, (2, 4)), ("triton", triton_version, (3, 0))):
            try:
                found = read()
            except MissingError as error:
                checks.append(Check(name, Status.MISSING, "not installed", str(error)))
                continue
            numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
            remedy = "" if numbers >= oldest else f"use {name} {'.'.join(map(str, oldest))} or newer"
            checks.append(Check(name, Status.MISSING if remedy else Status.OK, found, remedy))
        return tuple(checks)


def _callable_entries(entries: Sequence[Entry]) -> tuple[list[Entry], list[LeftOut]]:
    """The entries that a call can ask for; of several for one call (they differ in the scale) the first."""
    found: dict[object, Entry] = {}
    left_out: list[LeftOut] = []
    for entry in entries:
        own = declared_as(entry.problem.operator)
        why = f"no callable is written for the operator {entry.problem.operator}"
        if own is not None or entry.problem.operator in CALLABLES:
            call = _call(entry.problem.operator)
            why = why_not(own) if own is not None else call.why_not(entry.problem)
            key = (*entry.group[:3], call.settings(entry.problem), call.shape(entry.problem))
            if not why and found.setdefault(key, entry) is not entry:
                why = f"a call cannot tell it from {found[key].problem.label}, whose config is used"
        if why:
            left_out.append(LeftOut(f"{entry.problem.label} on {entry.device.name}", why))
    return list(found.values()), left_out


def _call(operator: str) -> Callable:
    own = declared_as(operator)
    return CALLABLES[operator] if own is None else own_callable(own)


def _module(operator: str) -> str:
    own = declared_as(operator)
    if own is not None:
        return own_module(own)
    return fill(f"python/_{CALLABLES[operator].template or operator}.py.j2", name=operator)


def _variant(entry: Entry) -> str:
    """A module's name."""
    words = re.sub(r"\W", "_", f"{entry.variant.operator}_{entry.variant.template}")
    return f"{words}_{entry.variant.hash[:16]}"


def _init(
    generator: str, operators: Sequence[str], nearest: Mapping[str, NearestRule], entries: Sequence[Entry]
) -> str:
    devices = sorted({f"{model_name(e.device)} ({arch(e.device)})" for e in entries})
    if any(entry.winner.record.estimated for entry in entries):
        devices.append("by estimates that nothing has measured")
    return fill(
        "python/__init__.py.j2",
        generator=generator,
        operators=[f"    {_call(op).line}" for op in operators],
        devices=[re.sub(r"[^\w ().,+/-]", "_", device) for device in devices],
        rules=[f"{bare_name(op)}: {nearest[op].text}" for op in operators],
        names=[bare_name(op) for op in operators],
        all_names=sorted(["Choice", "best", "use_device", *map(bare_name, operators)]),
    )


def _tables(entries: Sequence[Entry], nearest: Mapping[str, NearestRule], rule_text: str) -> str:
    operators = sorted(nearest)
    calls = {op: _call(op) for op in operators}
    devices: dict[str, dict[str, Any]] = {}
    for entry in entries:
        device = entry.device
        row = {"name": model_name(device), "arch": device.arch, "facts": dict(device.facts)}
        row |= {"memory_bytes": device.memory_bytes, "entries": {}}
        tables = devices.setdefault(device.key, row)["entries"]
        call = calls[entry.problem.operator]
        key = (bare_name(entry.problem.operator), entry.problem.dtype, call.settings(entry.problem))
        tables.setdefault(key, {})[call.shape(entry.problem)] = _row(entry)
    values: dict[str, Any] = {
        "devices": list(devices.values()),
        "weights": {bare_name(op): tuple(nearest[op].weights.values()) for op in operators},
        "axes": {bare_name(op): calls[op].axes for op in operators},
        "tensors": {bare_name(op): calls[op].tensors for op in operators},
        "implied": {bare_name(op): dict(calls[op].implied) for op in operators},
        "options": {bare_name(op): (*calls[op].options, *calls[op].switched) for op in operators},
        "unset": {bare_name(op): {**dict.fromkeys(calls[op].unset), **calls[op].constant} for op in operators},
        "rules_sha256": hashlib.sha256(rule_text.encode()).hexdigest(),
    }
    digest = hashlib.sha256(json.dumps(_plain(list(values.values())), separators=(",", ":")).encode()).hexdigest()
    shown = [
        {**device, "entries": [(key, list(rows.items())) for key, rows in device["entries"].items()]}
        for device in values.pop("devices")
    ]
    return fill("python/_tables.py.j2", devices=shown, digest=digest, **values)


def _row(entry: Entry) -> dict[str, Any]:
    config, switches = entry.winner.config, dict(entry.winner.config.switches)
    return {
        "variant": _variant(entry),
        "sha256": entry.variant.hash,
        "arguments": dict(entry.arguments),
        "rule": None if entry.rules is None else f"rule_{entry.rules.key}",
        "values": {name: config.values[name] for name in config.chosen if name not in switches},
        "switches": switches,
    }


def _plain(value: Any) -> Any:
    """As ``_plain`` of the package's ``_lookup.py``: what the digest is taken of."""
    if isinstance(value, dict):
        return [[_plain(key), _plain(item)] for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _limits(selection: Selection) -> list[tuple[int | str, int, int]]:
    wanted = {device.arch for device in selection.devices}
    return [
        (name, limits.shared_per_block, limits.registers_per_block)
        for name, limits in ARCH_LIMITS.items()
        if name in wanted
    ]


def _imported(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).partition(".")[0])
    return found
