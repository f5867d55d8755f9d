"""attention_fwd's template in Gluon, as far as it goes without a GPU: what the compiler makes of its schedule."""

from __future__ import annotations

import re
import subprocess

import pytest
import torch

from tuner import toolchain
from tuner.compiling import CompileJob
from tuner.loading import load_source
from tuner.operators import get
from tuner.shipped import variants_dir
from tuner.space import load_space
from tuner.tickets import TicketOffice

pytest.importorskip("triton.experimental.gluon", reason="Gluon is part of Triton 3.6 and newer, on Linux")

# A wait for one of two products, machine code, and the next wait for all.
ROUND = re.compile(r"DEPBAR\.LE gsb0, 0x1(.*?)DEPBAR\.LE gsb0, 0x0", re.DOTALL)


def test_the_softmax_is_taken_while_a_product_runs_and_nothing_is_spilled(machine):
    # The compiler may move a wait before what does not depend on it; then nothing would overlap.
    problem = get("attention_fwd").problem({"batch": 1, "heads": 2, "q_len": 512, "head_dim": 128}, "fp16")
    space = load_space("attention_fwd").bind(problem, machine.device)
    candidate = TicketOffice(space, machine.workspace, machine.stack.triton).candidate(
        space.parse("template=gluon,KV_STAGES=3,EARLY_RELEASE=false")
    )
    job = CompileJob(candidate.source_path, candidate.launch_arguments, problem, machine.device)
    report = machine.fresh_worker("compiling").run(job, 120).value
    assert report.kernels[0].spill_bytes == 0
    tool = toolchain.nvidia_tool("cuobjdump")
    assert tool is not None
    codes = [
        subprocess.run([str(tool), "-sass", str(path)], capture_output=True, text=True, check=True, timeout=60).stdout
        for path in machine.workspace.triton.rglob("attention_fwd_kernel.cubin")
    ]
    wide = [code for code in codes if re.search(r"HGMMA\.64x128x16\.F32 R\d+, R\d+, gdesc", code)]  # p in registers
    assert wide, "no product of 128 columns of V in fp16"
    for code in wide:
        rounds = ROUND.findall(code)
        assert len(rounds) == 2, "one loop for each of two consumers"
        # A thread has 64 of the weights of a tile, and rescales two rows.
        assert [r.count("MUFU.EX2") >= 66 for r in rounds] == [True, True]


def test_a_rendered_kernel_refuses_what_it_does_not_hold():
    module = load_source(variants_dir() / "attention_fwd" / "gluon.py")
    settings = {
        "scale": 1.0, "IS_CAUSAL": False, "PING_PONG": False, "EARLY_RELEASE": True, "PERSISTENT": False,
        "CONSUMERS": 2, "BLOCK_N": 128, "KV_STAGES": 2, "Q_STAGES": 1, "HEAD_GROUP": 1, "NUM_PROGRAMS": 132,
    }  # fmt: skip
    for dtype, head_dim in ((torch.float32, 64), (torch.bfloat16, 32)):
        q = torch.empty(1, 1, 8, head_dim, dtype=dtype, device="meta")
        lse = torch.empty(1, 1, 8, device="meta")
        with pytest.raises(ValueError, match="takes fp16 and bf16, and a head_dim of 64 or 128"):
            module.launch(q, q, q, q, lse, **settings)
