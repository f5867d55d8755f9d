"""Holds what a config computes to a reference function that the user names.

The reference takes the kernel's arguments by name, floating tensors as float64 copies, as the launch meets them: zeroed
where ``reset_to_zero`` or a hook says so. It returns the expected contents by argument name, and is right by
definition; how far a config may be from it follows from the formats and from how much the result depends on its inputs:

    |got - expected| <= (2 u_out + ARITHMETIC) |expected| + SENSITIVITY * s

``u_out`` is the unit roundoff of the output's format: one rounding, and one more of headroom. ``ARITHMETIC`` is what
sums and functions in fp32 may lose, relative to the result. ``s`` is by how much the reference itself moves, as the
root mean square of ``DRAWS`` runs, when every input is moved by up to one unit roundoff of the coarsest format that the
arithmetic uses: inputs' formats, and tf32 where fp32 matrices are multiplied and nothing says ``ieee``. Where terms
cancel, ``s`` grows as the rounding errors of a stable computation do (Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., 1.6: forward error from condition and backward error). A few draws can come out small for an
element by chance, so ``s`` is at least what its neighbours say: ``FLOOR`` of its root mean square along a line of the
output, the line of each axis on which that is the least; of a vector, ``VECTOR_FLOOR`` of that over all of it. What is
no float must be equal.

A config is launched on the caller's inputs, and on others of the same shapes that are made from them. An output that
the reference does not read holds before each launch what is wrong at every element. All other memory of the arguments
must hold the same bits afterwards, but for outputs and what is named as scratch, to be zeroed or to be restored.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from tuner.autotuning.arguments import base_tensor
from tuner.autotuning.asking import Reference, wide
from tuner.autotuning.bench import Bench
from tuner.autotuning.bounds import Tolerance, coarsest_unit
from tuner.autotuning.case import Case
from tuner.autotuning.copies import Contents, Copies
from tuner.autotuning.hooks import Hooks
from tuner.autotuning.kernel_source import KernelSource
from tuner.autotuning.made_inputs import make_inputs
from tuner.autotuning.untouched import changed
from tuner.comparison import Verdict
from tuner.errors import AutotuneError
from tuner.naming import listed
from tuner.trial import CheckReport, FamilyReport

OWN, MADE, UNTOUCHED = "reference", "reference on made inputs", "memory"
_SEED = 1
_WIDE_BYTES = 8
# In float64, while both sets of inputs are held: the arguments as the reference gets them, moved and not, and of an
# output what is expected, its bound, what moved inputs make of it, and a comparison.
_PER_ELEMENT, _PER_OUTPUT = 2, 8


class NotComparedError(AutotuneError):
    """A launch could not be compared; the config that was launched is not to blame."""


class Referee:
    """Knows, for one call, what its tensors must hold after a launch.

    ``copies`` are the call's; their first is worked on. ``scratch`` may hold anything afterwards. ``made_inputs``:
    whether configs are launched on other inputs too, where ``room_bytes`` are enough for what that takes; ``alone``
    says why they are not, empty where they are. Raises ``AutotuneError`` where the reference cannot be used.
    """

    def __init__(
        self,
        reference: Any,
        tolerance: Tolerance | None,
        source: KernelSource,
        arg_names: Sequence[str],
        copies: Copies,
        hooks: Hooks,
        *,
        scratch: Collection[str] = (),
        made_inputs: bool = True,
        room_bytes: float = math.inf,
    ) -> None:
        self._reference, self._tolerance, self._hooks, self._copies = Reference(reference), tolerance, hooks, copies
        self._scratch = frozenset(scratch)
        self._named = {n: v for n, v in copies.calls[0].named(arg_names).items() if n in arg_names}
        self._unit = coarsest_unit(source, self._named)
        copies.restore_first(hooks.zeroed)
        self.cases = [self.case(OWN)]
        self.alone = "made_inputs=False" if not made_inputs else self._add_made_case(room_bytes)
        copies.restore_first(hooks.zeroed)

    def examine(self, bench: Bench, config: Any, label: str, promise: str) -> CheckReport:
        """Launch ``config`` on each set of inputs until it is wrong.

        Raises what its launch raises, and ``NotComparedError`` where the reference or a comparison fails.
        """
        started = time.perf_counter()
        families: list[FamilyReport] = []
        try:
            for case in self.cases:
                look = _Look(self, case, self._copies, self._hooks.before_any(config))
                bench.launch_once(config, look)
                families += [_of_output(case.family, label, verdict) for verdict in look.verdicts]
                families.append(_of_memory(label, look.harm))
                if not all(family.passed for family in families):
                    break
        finally:
            self._copies.restore_first(self._hooks.zeroed)
        return CheckReport(tuple(families), 0, time.perf_counter() - started, promise=promise)

    def case(self, family: str, contents: Contents | None = None) -> Case:
        """Of what the first copy's tensors hold now."""
        return Case(
            family, self._reference, self._named, tolerance=self._tolerance, unit=self._unit,
            kept={*self._hooks.reset_to_zero, *self._hooks.restore_value}, contents=contents,
        )  # fmt: skip

    def may_change(self, case: Case) -> set[str]:
        """What a launch may leave with other bits."""
        return {*case.outputs, *self._scratch, *self._hooks.reset_to_zero, *self._hooks.restore_value}

    def _add_made_case(self, room_bytes: float) -> str:
        """Add one on other inputs; returns why there is none."""
        own = self.cases[0]
        elements = sum(t.numel() for t in self._tensors().values()), sum(w.numel() for w in own.expected.values())
        needed = self._copies.nbytes + _WIDE_BYTES * (_PER_ELEMENT * elements[0] + _PER_OUTPUT * elements[1])
        if not self._copies.whole or needed > room_bytes:
            return "there is no room for more copies of its tensors"
        unread = [n for n in self._inputs() if not self._reference.takes(n)]
        if unread:
            return f"the reference does not read {listed(unread)}, which may go with what it reads"
        why = ""
        for positive in (False, True):
            self._copies.restore_first(self._hooks.zeroed)
            # What is neither expected nor read by the reference stays as it is.
            fixed = (self.may_change(own) - {*own.outputs}) | {*own.pure, *self._hooks.zeroed}
            names = make_inputs(self._named, fixed, _SEED, positive=positive)
            if not names:
                return "it has no floating input"
            try:
                made = self.case(MADE, self._copies.contents())
            except Exception as error:  # it has no answer to them, or there is no room for it: it is the user's code
                why = f"the reference does not take other ones ({type(error).__name__})"
                continue
            if made.is_finite or not own.is_finite:
                unread = [name for name in names if not self._is_read(name, made)]
                if unread:
                    return f"the reference does not read {listed(unread)}, which may go with what it reads"
                self.cases.append(made)
                return ""
            why = "the reference is not finite on other ones"
        return why

    def _inputs(self) -> list[str]:
        """The tensors that a launch reads, as far as is said."""
        return [name for name in self._tensors() if name not in self.may_change(self.cases[0])]

    def _tensors(self) -> dict[str, torch.Tensor]:
        bases = {name: base_tensor(value) for name, value in self._named.items()}
        return {name: base for name, base in bases.items() if isinstance(base, torch.Tensor)}

    def _is_read(self, name: str, made: Case) -> bool:
        """Whether the reference's answer changes where this one tensor is as the caller has it."""
        if name in made.outputs:
            return True  # in place
        self._copies.restore_first(self._hooks.zeroed)
        own = wide({name: self._named[name]})
        self._copies.restore_first(self._hooks.zeroed, made.contents)
        answer = self._reference.again({**wide(self._named), **own})
        return any(not torch.equal(answer[n].nan_to_num(), want.nan_to_num()) for n, want in made.expected.items())


def _of_output(family: str, label: str, v: Verdict) -> FamilyReport:
    return FamilyReport(family, label, not v.reason, v.ratio, v.error, v.bound, v.output, v.where, v.reason)


def _of_memory(label: str, harm: str) -> FamilyReport:
    ratio = math.inf if harm else 0.0
    return FamilyReport(UNTOUCHED, label, not harm, ratio, ratio, 0.0, reason=harm)


class _Look:
    """Watches one launch. ``hooked``: whether something of the caller's runs before it, which may change its inputs."""

    def __init__(self, referee: Referee, case: Case, copies: Copies, hooked: bool) -> None:
        self._referee, self._case, self._copies, self._hooked = referee, case, copies, hooked
        self.contents = case.contents
        self._before = copies.given if case.contents is None else case.contents
        self._lying = copies.lying
        self.verdicts: list[Verdict] = []
        self.harm = ""

    def arrange(self, named: Mapping[str, Any]) -> None:
        """Spoil what the config has to write."""
        self._case.poison(named)
        if self._hooked:
            self._before = self._copies.contents()

    def before(self, named: Mapping[str, Any]) -> None:
        """Where hooks changed what is read, the reference has another answer."""
        if self._hooked:
            with _comparing():
                found = self._copies.contents()
                if changed(self._lying, self._before, found, self._case.pure):
                    self._case = self._referee.case(self._case.family)
                self._before = found

    def after(self, named: Mapping[str, Any]) -> None:
        """Compare."""
        with _comparing():
            self.verdicts = self._case.verdicts(named)
            self.harm = changed(self._lying, self._before, self._copies.now, self._referee.may_change(self._case))


@contextmanager
def _comparing() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # of the user's reference, or for lack of memory
        said = (str(error).strip() or "no message").splitlines()[0]
        raise NotComparedError(
            f"a launch cannot be compared with the reference ({type(error).__name__}: {said}); where memory is short, "
            "say made_inputs=False or a smaller memory_share"
        ) from None
