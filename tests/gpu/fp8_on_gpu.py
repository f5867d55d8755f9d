"""Checks attention_fwd's templates in fp8 on this GPU, as they are and with each of fp8's bugs; prints one JSON object.

The device's architecture, and by name whether it passed, and the reason. Bugs are planted where the weights are in fp8.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.gpu.gluon_on_gpu import checked
from tests.mutation.fp8_bugs import BUGS
from tuner.errors import ConfigError
from tuner.gpu_desk import GpuDesk
from tuner.operators import get
from tuner.probe import current_device
from tuner.space import load_space
from tuner.toolchain import triton_version

SHAPE = {"batch": 2, "heads": 6, "kv_heads": 2, "q_len": 150, "kv_len": 1000}
POINTER = "template=pointer,BLOCK_M=64,BLOCK_N=64,num_warps=4,num_stages=2"
DESCRIPTOR = "template=descriptor,BLOCK_M=64,BLOCK_N=64,num_warps=4,KV_STAGES=2"
CLOSE = ("weights_in_e5m2",)  # so near to what is declared that a few elements of the interpreter's problems show it
CONFIGS = (
    POINTER,
    f"{POINTER},DOT_PRECISION=bf16,USE_EXP2=false",
    DESCRIPTOR,
    f"{DESCRIPTOR},OVERLAP_QK=true,USE_EXP2=false",
    f"{DESCRIPTOR},DOT_PRECISION=bf16",
)


def main(folder: Path) -> None:
    device = current_device()
    found: dict[str, tuple[bool, str]] = {}
    if device is None:
        raise SystemExit("there is no GPU")
    for causal, head_dim in ((False, 32), (True, 128), (False, 256)):
        problem = get("attention_fwd").problem({**SHAPE, "head_dim": head_dim}, "fp8", {"causal": causal})
        space = load_space("attention_fwd").bind(problem, device, triton_version=triton_version())
        desk = GpuDesk(problem, device, 0)
        for text in CONFIGS:
            try:
                space.parse(text)
            except ConfigError:  # as where the device has no bulk copies, or too little shared memory
                continue
            found[f"honest {head_dim} {text}"] = checked(desk, space, text, (), folder)
        for text in (POINTER, DESCRIPTOR) if head_dim == 32 else ():
            template = text.partition(",")[0].partition("=")[2]
            if f"honest {head_dim} {text}" in found and space.parse(text).values["DOT_PRECISION"] == "ieee":
                for bug in (b for b in BUGS if not (b.options or b.name in CLOSE)):
                    words = f"{text},{bug.config}" if bug.config else text
                    found[f"{bug.name} {template}"] = checked(desk, space, words, bug.changes[template], folder)
    print(json.dumps([device.arch, found]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
