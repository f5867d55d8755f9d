"""A search space that needs no files: what the proposer uses of a bound space, and no more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tuner.config import Config, Value
from tuner.errors import ConfigError


class StubSpace:
    """Templates with lists of choices, one rule for what is valid, and a plain choice for each template."""

    def __init__(
        self,
        domains: Mapping[str, Mapping[str, tuple[Value, ...]]],
        plain: Mapping[str, Mapping[str, Value]] | None = None,
        valid: Callable[[str, Mapping[str, Value]], bool] = lambda template, chosen: True,
    ) -> None:
        self._domains = {t: dict(d) for t, d in domains.items()}
        self._valid = valid
        first = {t: {n: v[0] for n, v in d.items()} for t, d in domains.items()}
        self._plain = plain or first
        self.templates = tuple(domains)
        self.refused = {"split": "where: cols >= 4096 is false"}

    def domain(self, template: str) -> dict[str, tuple[Value, ...]]:
        return self._domains[template]

    def is_valid(self, template: str, chosen: Mapping[str, Value]) -> bool:
        return self._valid(template, chosen)

    def config(self, template: str, chosen: Mapping[str, Value]) -> Config:
        if not self.is_valid(template, chosen):
            raise ConfigError(f"not valid: {dict(chosen)}")
        return self._make(template, chosen)

    def configs(self) -> Iterator[Config]:
        for template, domain in self._domains.items():
            for values in itertools.product(*domain.values()):
                chosen = dict(zip(domain, values, strict=True))
                if self._valid(template, chosen):
                    yield self._make(template, chosen)

    def size(self) -> int:
        return sum(1 for _ in self.configs())

    def plain(self) -> tuple[Config, ...]:
        return tuple(self._make(t, c) for t, c in self._plain.items())

    @staticmethod
    def _make(template: str, chosen: Mapping[str, Value]) -> Config:
        return Config(template, (), tuple(sorted(chosen.items())), tuple(chosen))


@pytest.fixture
def stub_space() -> type[StubSpace]:
    """The class itself: a test builds the space that it needs."""
    return StubSpace


@pytest.fixture
def two_templates(stub_space: Any) -> StubSpace:
    """Two templates, 60 + 12 combinations, of which `split` takes only BLOCK >= 2048 in `online`: 48 + 12 valid."""
    return stub_space(
        {
            "online": {
                "BLOCK": (512, 1024, 2048, 4096, 8192),
                "num_warps": (2, 4, 8),
                "LOADS": ("pointer", "tma"),
                "SPLIT": (False, True),
            },
            "whole": {"num_warps": (2, 4, 8, 16), "num_stages": (1, 2, 3)},
        },
        plain={
            "online": {"BLOCK": 4096, "num_warps": 8, "LOADS": "pointer", "SPLIT": False},
            "whole": {"num_warps": 4, "num_stages": 2},
        },
        valid=lambda template, c: template != "online" or not c["SPLIT"] or c["BLOCK"] >= 2048,
    )


@pytest.fixture
def wide_space(stub_space: Any) -> StubSpace:
    """864 combinations, a third of them refused: more than is enumerated by default."""
    return stub_space(
        {
            "flash": {
                "BLOCK_M": (16, 32, 64, 128),
                "BLOCK_N": (16, 32, 64, 128),
                "num_warps": (2, 4, 8),
                "num_stages": (1, 2, 3),
                "EXP2": (False, True),
                "LOADS": ("pointer", "block", "tma"),
            }
        },
        plain={
            "flash": {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 2, "EXP2": False, "LOADS": "pointer"}
        },
        valid=lambda template, c: c["BLOCK_M"] * c["BLOCK_N"] >= 64 * c["num_warps"] * c["num_stages"],
    )
