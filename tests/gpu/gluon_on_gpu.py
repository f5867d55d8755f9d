"""Checks attention_fwd's template in Gluon on this GPU, as it is and with each of its bugs; prints one JSON object.

By name: whether it passed, and the reason. Empty where the template does not apply to the device.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from tests.mutation.gluon_bugs import GLUON
from tests.mutation.rewriting import Change, rewrite
from tests.mutation.setups import CAUSAL_SHAPE
from tuner.evaluating import Candidate
from tuner.gpu_desk import GpuDesk
from tuner.operators import get
from tuner.probe import current_device
from tuner.rendering import render
from tuner.space import BoundSpace, load_space
from tuner.toolchain import triton_version

SHAPE = {"batch": 2, "heads": 6, "kv_heads": 2, "q_len": 150, "kv_len": 400, "head_dim": 64}
CONFIGS = (
    "template=gluon",
    "template=gluon,PING_PONG=true,EARLY_RELEASE=false,PERSISTENT=true,CONSUMERS=3,HEAD_GROUP=1",
)


def checked(desk: GpuDesk, space: BoundSpace, text: str, changes: tuple[Change, ...], folder: Path) -> tuple[bool, str]:
    """Whether the config that ``text`` names passes the check with ``changes`` in its template, and the reason."""
    config = space.parse(text)
    template = space.template(config)
    if changes:
        template = replace(template, source=rewrite(template.source, changes))
    variant = render(template, dict(config.switches), triton_version())
    path = folder / f"{variant.hash}.py"
    path.write_text(variant.source, encoding="utf-8")
    report = desk.check(
        Candidate(
            variant.hash,
            str(path),
            space.launch_arguments(config),
            space.tiles(config),
            space.max_tiles(config),
            space.precision(config),
        )
    )
    return report.passed, report.families[-1].reason or ""


def main(folder: Path) -> None:
    device = current_device()
    found: dict[str, tuple[bool, str]] = {}
    if device is None:
        raise SystemExit("there is no GPU")
    for causal in (False, True):
        shape = {**SHAPE, **CAUSAL_SHAPE} if causal else SHAPE
        problem = get("attention_fwd").problem(shape, "bf16", {"causal": causal})
        # So few programs that those of a persistent config have several tiles each.
        space = load_space("attention_fwd").bind(problem, replace(device, sms=5), triton_version=triton_version())
        if "gluon" not in space.templates:
            break
        desk = GpuDesk(problem, device, 0)
        bugs = [m for m in GLUON if m.causal is causal]
        for text, mutant in [*((text, None) for text in CONFIGS), *((CONFIGS[0], mutant) for mutant in bugs)]:
            passed = checked(desk, space, text, () if mutant is None else mutant.changes["gluon"], folder)
            name = mutant.name if mutant is not None else f"honest {text} {'causal' if causal else 'full'}"
            found[name] = passed
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
