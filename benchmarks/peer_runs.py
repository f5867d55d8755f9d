"""What the comparisons of single operators with their peers share: arguments, tuning first, the winner, who runs."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

import tuner
from benchmarks.timed_calls import Call, captured
from benchmarks.winners import caller, load_winner
from tuner.operators import get
from tuner.operators.tensors import empty
from tuner.problem import Problem

Tensors = dict[str, torch.Tensor]
PeersOf = Callable[[Tensors], dict[str, Callable[[], Call]]]
"""From a problem's inputs, what makes a call of each peer, by name."""
Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Winner:
    """A stored winner on the GPU. ``call`` computes ``outputs`` of ``inputs``, captured where that goes."""

    label: str
    call: Call
    inputs: Tensors
    outputs: Tensors


def arguments(description: str | None, what: str = "problems") -> argparse.ArgumentParser:
    """Those of every comparison; ``what`` the positions of ``--only`` count."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--db", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tune-seconds", type=float, default=0.0, help="tune each problem for so long first")
    parser.add_argument("--only", type=int, nargs="*", help=f"positions in the list of {what}; default: all")
    return parser


def chosen(items: Sequence[Item], only: Sequence[int] | None) -> list[Item]:
    """The items at the positions ``only``; all where it is None."""
    return [item for at, item in enumerate(items) if only is None or at in only]


def tune(db: str, problems: Sequence[Problem], seconds: float) -> None:
    """Tune each problem for so long, nothing where that is 0; one line a problem."""
    if not seconds:
        return
    with tuner.Session(db=db, gpu=True) as session:
        for problem in problems:
            winner = session.tune(problem, time_s=seconds).winner
            time = f"{winner.record.median_us:.1f} us" if winner else "no winner"
            print(f"tuned {problem.label}: {time}", flush=True)


def stored_winner(problem: Problem, db: str) -> Winner | None:
    """The problem's winner with inputs and outputs of its own; None, and a line, where nothing is stored for it."""
    if tuner.best(problem, db=db) is None:
        print(f"nothing is stored for {problem.label}; tune it, or give --tune-seconds", flush=True)
        return None
    operator = get(problem.operator)
    module, label = load_winner(problem, db)
    inputs = operator.timing_inputs(problem, 0, "cuda")
    specs = operator.output_specs(problem)
    outputs = {name: empty(spec.shape, spec.dtype, "cuda", spec.strides) for name, spec in specs.items()}
    ours = caller(module, **inputs, **outputs, **operator.scalars(problem))
    return Winner(label, captured(ours), inputs, outputs)


def made(makers: dict[str, Callable[[], Call]], problem: Problem) -> dict[str, Call]:
    """The peers that can be made; of each other it is said why not."""
    calls: dict[str, Call] = {}
    for name, make in makers.items():
        try:
            calls[name] = make()
        except Exception as why:  # whatever a library of others raises where it is missing or refuses
            print(f"{name} at {problem.label}: {type(why).__name__}: {(str(why).splitlines() or [''])[0]}", flush=True)
    return calls


def running(calls: dict[str, Call], problem: Problem) -> dict[str, Call]:
    """Those that run, captured; of each other it is said why not."""
    found = {}
    for name, call in calls.items():
        try:
            with torch.no_grad():
                call()
            torch.cuda.synchronize()
        except (RuntimeError, TypeError) as why:
            print(f"{name} at {problem.label}: {str(why).splitlines()[0]}", flush=True)
            torch.cuda.empty_cache()
            continue
        found[name] = captured(call)
    return found


def one_by_one(items: Iterable[Item], measure: Callable[[Item], Found | None]) -> Iterator[tuple[Item, Found]]:
    """What is found of each item, where something is. What one takes is free before the next, which may need it."""
    for item in items:
        found = measure(item)
        gc.collect()
        torch.cuda.empty_cache()
        if found is not None:
            yield item, found
