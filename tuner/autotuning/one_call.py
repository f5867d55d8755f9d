"""One call's arguments with everything that tuning for them needs: its problem, its study, its tensors' copies."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tuner.autotuning import card as cards
from tuner.autotuning.arguments import by_name, defaults_of, kernel_name, problem_of
from tuner.autotuning.bench import Bench
from tuner.autotuning.card import Card
from tuner.autotuning.choices import Choices, bound_choices, choices_text
from tuner.autotuning.compile_queue import CompileQueue
from tuner.autotuning.configs import launchable, stored
from tuner.autotuning.copies import Copies
from tuner.autotuning.fingerprint import fingerprint
from tuner.autotuning.identity import identity_of
from tuner.autotuning.kernel_source import KernelSource, read_kernel_source
from tuner.autotuning.ledger import Held, Ledger, recall, recall_anywhere
from tuner.autotuning.proposals import ListedProposer
from tuner.autotuning.referee import Referee
from tuner.autotuning.settings import Settings
from tuner.autotuning.tuning import Tuning
from tuner.autotuning.turns import tuning
from tuner.autotuning.written import written_arguments
from tuner.canonical import canonical_json, digest
from tuner.config import Config
from tuner.device import MEASURED, Device, Stack
from tuner.search import make_proposer
from tuner.search.base import Proposer
from tuner.space import BoundSpace
from tuner.store.records import StudySpec
from tuner.targets import target
from tuner.timing import CACHE_MULTIPLE
from tuner.toolchain import torch_version, triton_version
from tuner.variant import Variant
from tuner.workspace import Workspace

_LIST = "list"
_NOWHERE = "sm_90"


@dataclass(frozen=True)
class Chosen:
    """A ``triton.Config``, why, and every config's times in milliseconds (median, fast end, slow end)."""

    config: Any
    verdict: str
    timings: dict[Any, list[float]]


class OneCall:
    """``configs`` is the decorator's whole list, which is part of the study's identity; ``admitted`` what may be tried.

    ``obstacle``, after tuning: why configs were compiled by their launches, one at a time; empty where they were not.
    """

    def __init__(
        self,
        kernel: Any,
        arg_names: Sequence[str],
        settings: Settings,
        choices: Choices | Path | None,
        configs: list[Any],
        admitted: list[Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        self._kernel, self._arg_names, self._settings, self._choices = kernel, arg_names, settings, choices
        self._configs, self._admitted, self._args, self._kwargs = configs, admitted, args, kwargs
        self._launchables: dict[str, Any] = {}
        self.name = kernel_name(kernel)
        named = by_name(arg_names, args, kwargs)
        self.problem = problem_of(self.name, settings.key, named, defaults_of(kernel))
        self._identity = identity_of(kernel, settings, configs, named, kwargs.get("grid"))
        self._hooks = {id(config): hook for config, hook in zip(configs, self._identity.hooks, strict=True)}
        self.held = Held(self._identity.promise)
        self.obstacle = ""

    @property
    def unknown(self) -> str:
        """What keeps the winner from being remembered beyond this process; empty where nothing does."""
        return self._identity.unknown

    @cached_property
    def source(self) -> KernelSource:
        """The kernel's text and what it refers to."""
        return read_kernel_source(self._kernel)

    @property
    def _template(self) -> str:
        return self.source.functions[0].name

    def recalled(self) -> Any:
        """The stored best: of this device and software, or where there is no GPU of any; None where there is none."""
        if not self._settings.remember:
            return None
        card = cards.find_card()
        if card is not None:
            config = recall(self._settings.db, self._spec(card.device, card.stack))
        else:
            config = recall_anywhere(self._settings.db, self.problem, self._digest(target(_NOWHERE)))
        return None if config is None else self._admitted_one(config)

    def _admitted_one(self, config: Config) -> Any:
        """The launchable one where it may be used now: the caller's pruning may have changed."""
        if self._choices is not None:
            return launchable(config)
        admitted = {self._stored(c).key: c for c in self._settings.pruning.admitted(
            self._configs, dict(zip(self._arg_names, self._args, strict=False)), self._kwargs
        )}  # fmt: skip
        return admitted.get(config.key)

    def tune(self, card: Card | None) -> Chosen:
        """Try the configs. Raises ``StudyFailedError`` where none works, ``MemoryError`` where there is no room."""
        settings = self._settings
        device = card.device if card is not None else None
        spec = self._spec(device or target(_NOWHERE), card.stack if card is not None else _no_stack())
        variant = Variant(self.name, self._template, self.source.key, (), self._text, "")
        remember = settings.remember and card is not None
        with (
            tuning() as nested,
            self._alone_on(None if nested else card),
            Ledger(settings.db, spec, variant, remember=remember) as ledger,
        ):
            # Whoever held the card, or the study, may have been at the same kernel.
            found = None if ledger.winner_there is None else self._admitted_one(ledger.winner_there)
            if found is not None:
                return Chosen(found, "found by another process", {})
            copies = self._copies(card)
            referee = None
            if settings.reference is not None:
                referee = Referee(
                    settings.reference, settings.tolerance, self.source, self._arg_names, copies, settings.hooks,
                    scratch=settings.scratch, made_inputs=settings.made_inputs,
                    room_bytes=math.inf if card is None else card.free_bytes(),
                )  # fmt: skip
            bench = Bench(self._kernel, self._arg_names, copies, settings.hooks, card, graph=settings.graph)
            bound = self._bound(spec.device)
            budget = len(self._admitted) if bound is None else min(settings.trials, bound.size())
            # The compile processes answer to one tuning at a time.
            queue = CompileQueue(
                self._kernel, self.source, self._args, self._kwargs, device, variant.hash, 0 if nested else budget
            )
            with contextlib.closing(queue), contextlib.closing(self._proposer(bound, ledger)) as proposer:
                result = Tuning(
                    self.problem.label, bench, queue, proposer, self._launchable, ledger, self.held,
                    settings.timing, card, referee, math.inf if bound is None else budget,
                ).run()  # fmt: skip
            self.obstacle = queue.obstacle if device is not None else ""
        timings = {self._launchable(config): times for config, times in result.timings.items()}
        return Chosen(result.winner.launchable, result.verdict, timings)

    def _stored(self, config: Any) -> Config:
        """By what its hook was when this call came: a hook may keep what it has seen."""
        hook = self._hooks.get(id(config))
        if hook is None:  # one that the caller's pruning made
            hook = "" if config.pre_hook is None else fingerprint(pre_hook=config.pre_hook).digest[:8]
        return stored(self._template, config, hook)

    @property
    def _text(self) -> str:
        """The kernel's text under a hash of all that it reaches: together they are one program."""
        return f"# with {self._identity.program}\n{self.source.text}"

    def _launchable(self, config: Config) -> Any:
        """The same object for the same config: it is what a launch's host time is known by."""
        if config.key not in self._launchables:
            self._launchables[config.key] = launchable(config)
        return self._launchables[config.key]

    def _proposer(self, bound: BoundSpace | None, ledger: Ledger) -> Proposer:
        if bound is None:
            named = {self._stored(config).key: config for config in self._admitted}
            self._launchables.update(named)
            return ListedProposer(self._stored(config) for config in self._admitted)
        storage, study_name = ledger.storage
        return make_proposer(
            bound, sampler=self._settings.sampler, seed=self._settings.seed, storage=storage, study_name=study_name,
            known={},
        )  # fmt: skip

    def _bound(self, device: Device) -> BoundSpace | None:
        if self._choices is None:
            return None
        return bound_choices(self._choices, self.problem, device, self.source, self._arg_names)

    def _copies(self, card: Card | None) -> Copies:
        hooks = self._settings.hooks
        written = written_arguments(self.source) | {*hooks.reset_to_zero, *hooks.restore_value}
        limit = int(self._settings.memory_share * card.free_bytes()) if card is not None else 1 << 62
        wanted = CACHE_MULTIPLE * card.device.l2_bytes if card is not None else 0
        hooked = any(hooks.around_each(config) for config in self._admitted)
        return Copies(
            self._arg_names, self._args, self._kwargs, written, hooked=hooked, wanted_bytes=wanted, limit_bytes=limit
        )

    def _digest(self, device: Device) -> str:
        if self._choices is not None:
            space: object = bound_choices(self._choices, self.problem, device, self.source, self._arg_names).digest
        else:
            space = [self._stored(config).key for config in self._configs]
        return digest([self.source.key, self._identity.program, space, self.held.promise])

    def _spec(self, device: Device, stack: Stack) -> StudySpec:
        listed = self._choices is None
        labels = [self._stored(config).label for config in self._configs]
        return StudySpec(
            problem=self.problem,
            device=device,
            stack=stack,
            space_name=self._template,
            space_digest=self._digest(device),
            space_text=canonical_json(labels) if self._choices is None else choices_text(self._choices),
            sampler=_LIST if listed else self._settings.sampler,
            seed=self._settings.seed,
            protocol=self._settings.timing.protocol,
            space_size=len(self._configs) if listed else None,
            max_trials=None if listed else self._settings.trials,
        )

    @contextlib.contextmanager
    def _alone_on(self, card: Card | None) -> Iterator[None]:
        """Hold the card for timing, as studies do."""
        if card is None:
            yield
            return
        with Workspace().gpu_lock(card.device.name):
            yield


def _no_stack() -> Stack:
    return Stack(MEASURED, triton_version(), torch_version(), "")
