"""Turns a config into what a funnel takes: its variant rendered and written, and the facts that its check needs."""

from __future__ import annotations

from itertools import count

from tuner.config import Config, Value
from tuner.evaluating import Candidate
from tuner.funnel import Ticket
from tuner.rendering import render
from tuner.space import BoundSpace
from tuner.variant import Variant
from tuner.workspace import Workspace


class TicketOffice:
    """Makes tickets for one bound space. Variants are rendered once; ``triton_version`` decides how exp2 is spelt."""

    def __init__(self, bound: BoundSpace, workspace: Workspace, triton_version: str) -> None:
        self.bound = bound
        self._workspace = workspace
        self._triton_version = triton_version
        self._variants: dict[tuple[str, tuple[tuple[str, Value], ...]], Variant] = {}
        self._numbers = count()

    def variant(self, config: Config) -> Variant:
        """The variant of ``config``. Raises ``TemplateError`` where the template cannot be rendered."""
        key = (config.template, config.switches)
        if key not in self._variants:
            template = self.bound.template(config)
            self._variants[key] = render(template, dict(config.switches), self._triton_version)
        return self._variants[key]

    def candidate(self, config: Config) -> Candidate:
        """The workers' view of ``config``."""
        bound = self.bound
        return Candidate(
            key=config.key,
            source_path=str(self._workspace.source_path(self.variant(config))),
            launch_arguments=bound.launch_arguments(config),
            tiles=bound.tiles(config),
            max_tiles=bound.max_tiles(config),
            profile=bound.precision(config),
        )

    def ticket(self, config: Config) -> Ticket:
        """A new ticket for ``config``."""
        return Ticket(next(self._numbers), config, self.variant(config), self.candidate(config))
