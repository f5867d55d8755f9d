"""One file for people: a variant with its config and provenance, which runs with torch and Triton and nothing else."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.config import Config, Value
from tuner.constants import quoted
from tuner.device import Device, Stack
from tuner.problem import Problem
from tuner.triton_api import insert_after_imports
from tuner.variant import Variant

_WIDTH = 118


@dataclass(frozen=True)
class StandaloneHeader:
    """What the file says about itself. Empty fields are left out.

    ``arguments``: what ``launch()`` takes of the config (``BoundSpace.launch_arguments``); fixed switches are dropped.
    ``tolerance``: text for people. ``self_check``: the operator's source text, which may use ``launch``, ``CONFIG`` and
    ``torch`` and imports the rest itself: a whole ``if __name__ == "__main__":`` part, or the statements inside one.
    ``device`` and ``stack``: what it was tuned on. ``generator``: name and version of what wrote the file.
    """

    problem: Problem
    config: Config
    arguments: tuple[tuple[str, Value], ...]
    space_digest: str = ""
    device: Device | None = None
    stack: Stack | None = None
    tolerance: str = ""
    self_check: str = ""
    generator: str = ""

    @classmethod
    def of(cls, problem: Problem, config: Config, arguments: Mapping[str, Value], **rest: object) -> StandaloneHeader:
        """The header with ``arguments`` as a mapping."""
        return cls(problem, config, tuple(sorted(arguments.items())), **rest)  # type: ignore[arg-type]


FIRST_LINE = "# A tuned Triton kernel. Generated; needs torch and Triton only. Call launch(..., **CONFIG)."


def is_rendered(text: str) -> bool:
    """Whether a file's text was written by ``standalone``."""
    return text.startswith(FIRST_LINE)


def standalone(variant: Variant, header: StandaloneHeader) -> str:
    """The file's text: header comment, the variant with ``CONFIG = {...}`` after its imports, and the self-check."""
    config = {name: value for name, value in header.arguments if name not in dict(variant.switches)}
    check = _self_check(header.self_check)
    body = insert_after_imports(_with_torch(variant.source, check), _config(config))
    return "".join([_comment(variant, header), "\n", body, check])


def _comment(variant: Variant, header: StandaloneHeader) -> str:
    switches = ", ".join(f"{name}={value}" for name, value in variant.switches)
    facts = [
        ("Operator", variant.operator),
        ("Problem", header.problem.label),
        ("Config", header.config.label),
        ("Switches", switches),
        ("Template", f"{variant.operator}/{variant.template}, SHA-256 {variant.template_hash}"),
        ("Variant", f"SHA-256 {variant.hash}"),
        ("Search space", header.space_digest),
        ("Tuned for" if header.stack and header.stack.mode == "estimated" else "Tuned on", _tuned_on(header)),
        ("exp2", "" if variant.exp2 == "none" else variant.exp2),
        ("Tolerance", header.tolerance),
        ("Generator", header.generator),
    ]
    lines = [FIRST_LINE]
    for name, text in facts:
        if text:
            first, *rest = _wrapped(text)
            lines.append(f"# {name + ':':<13} {first}")
            lines.extend(f"# {'':<13} {line}" for line in rest)
    return "\n".join(lines) + "\n"


def _tuned_on(header: StandaloneHeader) -> str:
    words = [header.device.name if header.device else "", header.stack.label if header.stack else ""]
    if header.stack and header.stack.mode == "estimated":
        words.append("estimated, not measured")
    return "; ".join(word for word in words if word)


def _wrapped(text: str) -> list[str]:
    printable = "".join(c if c.isprintable() or c == "\n" else " " for c in text.replace("\r", "\n"))
    lines = [
        part
        for line in printable.split("\n")
        for part in textwrap.wrap(line, _WIDTH - 16, break_long_words=False, break_on_hyphens=False)
    ]
    return lines or [""]


def _config(arguments: Mapping[str, Value]) -> str:
    entries = "".join(f"    {quoted(name)}: {_literal(value)},\n" for name, value in sorted(arguments.items()))
    return f"CONFIG = {{\n{entries}}}\n" if entries else "CONFIG = {}\n"


def _literal(value: Value) -> str:
    return quoted(value) if isinstance(value, str) else repr(value)


def _self_check(text: str) -> str:
    text = textwrap.dedent(text).strip("\n")
    if not text:
        return ""
    if not any(line.startswith("if __name__") for line in text.splitlines()):
        text = 'if __name__ == "__main__":\n' + textwrap.indent(text, "    ")
    return f"\n\n{_GUARD}\n\n{text}\n"


_GUARD = """\
if __name__ == "__main__" and not torch.cuda.is_available():
    import os
    import sys

    if os.environ.get("TRITON_INTERPRET", "").lower() not in ("1", "true", "on", "yes", "y"):
        print("error: no GPU is visible; set TRITON_INTERPRET=1 to run this in Triton's interpreter", file=sys.stderr)
        raise SystemExit(2)
"""


def _with_torch(source: str, check: str) -> str:
    """``source`` with an ``import torch`` before its first import, where ``check`` needs one that neither has."""
    tree = ast.parse(source)
    nodes = [*ast.walk(tree), *ast.walk(ast.parse(check))]
    imports = [n for n in nodes if isinstance(n, ast.Import)]
    imported = any((alias.asname or alias.name).partition(".")[0] == "torch" for n in imports for alias in n.names)
    if imported or not any(isinstance(n, ast.Name) and n.id == "torch" for n in nodes):
        return source
    first = next(n.lineno for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom))
    lines = source.splitlines(keepends=True)
    return "".join([*lines[: first - 1], "import torch\n", *lines[first - 1 :]])
