"""A config: one template with its switches fixed, and one choice of launch parameters. A pure value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.canonical import digest

Value = bool | int | float | str


@dataclass(frozen=True)
class Config:
    """One point of a search space.

    ``switches`` select the variant (they change the rendered source); ``launch`` are the arguments that the variant's
    ``launch`` function takes (block sizes, ``num_warps``, ...), derived ones included. Both are sorted by name.
    ``chosen`` names the switches and parameters that the search chose; the rest follow from the problem.
    """

    template: str
    switches: tuple[tuple[str, Value], ...]
    launch: tuple[tuple[str, Value], ...]
    chosen: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Identity within one problem: a hash of template, switches and launch parameters."""
        return digest([self.template, dict(self.switches), dict(self.launch)])

    @property
    def values(self) -> dict[str, Value]:
        """Switches and launch parameters together, by name."""
        return {**dict(self.switches), **dict(self.launch)}

    @property
    def label(self) -> str:
        """For people and for ``--config``: ``template=online,BLOCK_COLS=4096,num_warps=8``; chosen names only."""
        values = self.values
        names = self.chosen or tuple(values)
        return ",".join([f"template={self.template}", *(f"{name}={values[name]}" for name in names)])

    def as_json(self) -> dict[str, object]:
        """Plain data that ``from_json`` reads back."""
        return {
            "template": self.template,
            "switches": dict(self.switches),
            "launch": dict(self.launch),
            "chosen": list(self.chosen),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Config:
        """The inverse of ``as_json``. Raises ``ValueError`` where a chosen name has no value."""
        switches, launch, chosen = data["switches"], data["launch"], data.get("chosen", ())
        assert isinstance(switches, Mapping) and isinstance(launch, Mapping) and isinstance(chosen, list | tuple)
        if unknown := [name for name in chosen if name not in switches and name not in launch]:
            raise ValueError(f"the config chooses {unknown[0]!r}, but has no value for it")
        return cls(str(data["template"]), tuple(sorted(switches.items())), tuple(sorted(launch.items())), tuple(chosen))
