"""A variant: the source of one template with its switches fixed, named by its content. A pure value."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tuner.config import Value


@dataclass(frozen=True)
class Variant:
    """Rendered source (standard-library Python, torch and Triton only) that defines ``launch(...)``.

    ``template_hash`` names the template text that it was rendered from; ``switches`` are those that were fixed;
    ``exp2`` is the spelling of the base-2 exponential in it: ``tl.exp2``, ``tl.math.exp2`` or ``shim``.
    """

    operator: str
    template: str
    template_hash: str
    switches: tuple[tuple[str, Value], ...]
    source: str
    exp2: str

    @property
    def hash(self) -> str:
        """SHA-256 of the source, in hex."""
        return hashlib.sha256(self.source.encode()).hexdigest()
