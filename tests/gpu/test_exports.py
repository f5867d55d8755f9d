"""Exported tables on the GPU that they were tuned on: what is launched, that it is right, and that nothing is timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tuner
from tests.checkout import checkout
from tests.programs import environment, run

START = """
import json, os, pathlib, sys, warnings
import torch, triton
warnings.filterwarnings("error", ".* does not run here")  # what the package says of a kernel that fails
triton.testing.do_bench = lambda *words, **more: sys.exit("a benchmark")

def kernels_compiled():
    return len(list(pathlib.Path(os.environ["TRITON_CACHE_DIR"]).rglob("*.cubin")))
"""


def on_gpu(folder: Path, program: str) -> dict[str, object]:
    """Runs ``program`` in ``folder`` with an empty cache of kernels; it prints one JSON document."""
    (folder / "program.py").write_text(START + program, encoding="utf-8")
    settings = {"TRITON_CACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    done = run(folder / "program.py", env=environment(**settings), cwd=folder, limit_s=300)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_the_package_launches_the_winner_and_is_right_at_other_shapes(tmp_path: Path, database: str) -> None:
    softmax = {"rows": 2048, "cols": 4096}
    attention = {"batch": 2, "heads": 8, "kv_heads": 2, "q_len": 1024, "head_dim": 64}
    tuner.tune(tuner.make_problem("softmax", softmax, "bf16"), trials=12, db=database, gpu=True)
    tuner.tune(
        tuner.make_problem("attention_fwd", attention, "bf16", {"causal": True}), trials=8, db=database, gpu=True
    )
    assert tuner.export("python", tmp_path / "tuned_kernels", db=database).entries == 2
    found = on_gpu(
        tmp_path,
        """
import tuned_kernels as kernels

def softmax_error(rows, cols):
    x = torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16)
    return (kernels.softmax(x).double() - torch.softmax(x.double(), -1)).abs().max().item()

def attention_error(batch, heads, kv_heads, length):
    q = torch.randn(batch, heads, length, 64, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(batch, kv_heads, length, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    right = torch.nn.functional.scaled_dot_product_attention(
        *(t.float().repeat_interleave(heads // t.shape[1], 1) for t in (q, k, v)), is_causal=True)
    return (kernels.attention_fwd(q, k, v, causal=True)[0] - right).abs().max().item()

choice = kernels.best("softmax", torch.bfloat16, (2048, 4096), (), 0)
errors = [softmax_error(2048, 4096)]
first = kernels_compiled()
again = softmax_error(2048, 4096), kernels_compiled()
errors += [softmax_error(*shape) for shape in ((2000, 4096), (2048, 3001), (333, 3001), (1, 5))]
x = torch.randn(2048, 4096, device="cuda", dtype=torch.bfloat16)
compiled = torch.compile(lambda x: kernels.softmax(x * 2) + 1, fullgraph=True)(x)
print(json.dumps({
    "exact": choice.exact, "variant": choice.variant, "errors": errors, "first": first, "again": again[1],
    "attention": [attention_error(2, 8, 2, 1024), attention_error(1, 4, 4, 777)],
    "opcheck": sorted(set(torch.library.opcheck(torch.ops.tuned_kernels.softmax.default, (x,)).values())),
    "compiled": (compiled.float() - (torch.softmax(x.float() * 2, -1) + 1)).abs().max().item(),
}))
""",
    )
    assert found["exact"] is True and found["opcheck"] == ["SUCCESS"]
    assert max(found["errors"]) < 4e-3 and max(found["attention"]) < 2e-2 and found["compiled"] < 1e-2
    kernels = 2 if "split_row" in str(found["variant"]) else 1
    assert found["first"] == found["again"] == kernels, "the first call compiles the winner and nothing else"


def test_a_kernel_under_tritons_autotuner_launches_what_was_exported(tmp_path: Path, database: str) -> None:
    space = checkout() / "examples/my_space/softmax.yaml"
    problem = tuner.make_problem("softmax", {"rows": 512, "cols": 4096}, "fp16")
    result = tuner.tune(problem, space=space, db=database, gpu=True)
    assert result.winner is not None
    tuner.export("triton", tmp_path / "tuned_configs.py", db=database)
    (tmp_path / "row_softmax.py").write_text((space.parent / "row_softmax.py").read_text(encoding="utf-8"))
    found = on_gpu(
        tmp_path,
        """
import row_softmax, tuned_configs
(name,) = tuned_configs.KEYS
candidates = [triton.Config({"USE_EXP2": e}, num_warps=w) for e in (True, False) for w in (1, 32)]
never = lambda *words, **more: sys.exit("a benchmark")
key = list(tuned_configs.KEYS[name])
kernel = triton.autotune(configs=candidates, key=key, do_bench=never)(getattr(row_softmax, name))
filled = tuned_configs.preload(kernel)
x = torch.randn(512, 4096, device="cuda", dtype=torch.float16)
out = torch.empty_like(x)
class Kernel:  # launch() gives grid and arguments; what was tuned is the autotuner's to give
    def __getitem__(self, grid):
        return lambda *words, USE_EXP2=None, num_warps=None, **more: kernel[grid](*words, **more)
setattr(row_softmax, name, Kernel())
row_softmax.launch(x, out, BLOCK_COLS=4096, USE_EXP2=None, num_warps=None)
print(json.dumps({"filled": filled, "error": (out.double() - torch.softmax(x.double(), -1)).abs().max().item(),
                  "num_warps": kernel.best_config.num_warps, "USE_EXP2": kernel.best_config.kwargs["USE_EXP2"]}))
""",
    )
    values = result.winner.config.values
    assert found.pop("error") < 3e-4
    assert found == {"filled": 1, "num_warps": values["num_warps"], "USE_EXP2": values["USE_EXP2"]}


def test_flex_attention_compiles_with_the_picked_options(tmp_path: Path, database: str) -> None:
    shape = {"batch": 2, "heads": 8, "q_len": 1024, "head_dim": 64}
    problem = tuner.make_problem("attention_fwd", shape, "bf16", {"causal": True})
    tuner.tune(problem, trials=8, db=database, gpu=True)
    tuner.export("flex", tmp_path / "flex_options.py", db=database, seed=True)
    found = on_gpu(
        tmp_path,
        """
import flex_options
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
options = flex_options.pick(torch.cuda.get_device_name(), torch.bfloat16, 64, 1024, 1024, True)
q = torch.randn(2, 8, 1024, 64, device="cuda", dtype=torch.bfloat16)
mask = create_block_mask(lambda b, h, m, n: m >= n, None, None, 1024, 1024)
out = torch.compile(flex_attention)(q, q, q, block_mask=mask, kernel_options=options)
right = torch.nn.functional.scaled_dot_product_attention(q.float(), q.float(), q.float(), is_causal=True)
print(json.dumps({"options": len(options), "error": (out - right).abs().max().item()}))
""",
    )
    assert found["options"] == 4
    assert found["error"] == pytest.approx(0.0, abs=3e-2)
