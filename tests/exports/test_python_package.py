"""The exported package: run in Triton's interpreter against torch, tuned and untuned, whole and damaged."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

import tuner
from tests.checkout import other_tritons
from tests.exports.stored_winners import H100, softmax, store_winner
from tests.programs import environment, run
from tuner.errors import UsageError
from tuner.exports.entry import Entry
from tuner.exports.losses import fit_nearest
from tuner.exports.selecting import Wanted, select
from tuner.store.store import Store

pytestmark = pytest.mark.slow

START = """
import json, sys, warnings
import torch
import tuned_kernels as kernels

def softmax_error(*shape, dtype=torch.float16):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    return (kernels.softmax(x).double() - torch.softmax(x.double(), -1)).abs().max().item()

def attention_errors(batch, heads, kv_heads, q_len, kv_len, head_dim, causal, dtype=torch.float16, **rest):
    g = torch.Generator().manual_seed(0)
    q = torch.randn(batch, heads, q_len, head_dim, generator=g).to(dtype)
    k, v = (torch.randn(batch, kv_heads, kv_len, head_dim, generator=g).to(dtype) for _ in range(2))
    out, lse = kernels.attention_fwd(q, k, v, causal=causal, **rest)
    wide = [t.double().repeat_interleave(heads // kv_heads, 1) for t in (k, v)]
    logits = q.double() @ wide[0].transpose(2, 3) * rest.get("scale", head_dim ** -0.5)
    if causal:
        logits = logits.masked_fill(torch.ones(q_len, kv_len).tril(kv_len - q_len) == 0, float("-inf"))
    right, sums = torch.softmax(logits, -1).nan_to_num(0.0) @ wide[1], torch.logsumexp(logits, -1)
    seen = sums > float("-inf")
    assert torch.equal(lse == float("-inf"), ~seen)
    return (out.double() - right).abs().max().item(), (lse.double() - sums)[seen].abs().max().item()

def chosen(operator, dtype, *shape, options=()):
    choice = kernels.best(operator, dtype, shape, options, -1)
    return None if choice is None else [choice.exact, list(choice.shape), choice.arguments]
"""


def run_package(folder: Path, program: str, *paths: Path, interpret: bool = True) -> dict[str, object]:
    """Runs ``program``, which prints one JSON document, beside the package; ``paths`` are imported from first."""
    script = folder.parent / "program.py"
    script.write_text(START + program, encoding="utf-8")
    changes = {"TRITON_INTERPRET": "1"} if interpret else {}
    done = run(script, env=environment(*paths, **changes), cwd=folder.parent, limit_s=180)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_it_computes_what_torch_does_at_tuned_and_other_shapes(exported):
    found = run_package(
        exported,
        """
kernels.use_device("NVIDIA H200")
errors = {
    "tuned": softmax_error(64, 512), "ragged": softmax_error(3, 777), "wider": softmax_error(2, 4097),
    "three axes": softmax_error(5, 2, 1000), "one": softmax_error(1, 1),
    "untuned dtype": softmax_error(4, 512, dtype=torch.float32),
}
exact = attention_errors(1, 2, 2, 128, 128, 64, False)
causal = attention_errors(1, 2, 2, 128, 128, 64, True)
ragged = attention_errors(1, 4, 2, 100, 77, 64, False)
late = attention_errors(1, 2, 1, 90, 40, 64, True)   # queries that see no key
short = attention_errors(2, 2, 2, 5, 300, 32, True)
scaled = attention_errors(1, 2, 2, 128, 128, 64, False, scale=0.5)
print(json.dumps({
    "softmax": errors, "attention": [exact, causal, ragged, late, short, scaled],
    "loaded": sorted({name.partition(".")[0] for name in sys.modules} & {"tuner", "optuna", "sqlalchemy"}),
    "tuned": chosen("softmax", torch.float16, 64, 512), "ragged": chosen("softmax", torch.float16, 3, 777),
    "tuned attention": chosen("attention_fwd", torch.float16, 1, 2, 2, 128, 128, 64, options=(True, False)),
}))
""",
    )
    # Rounding to fp16 of values below 1 (softmax), and of sums of about 64 products (attention).
    assert all(error < 3e-4 for error in found["softmax"].values())
    assert max(out for out, _ in found["attention"]) < 3e-3, found["attention"]
    assert max(lse for _, lse in found["attention"]) < 2e-5, found["attention"]
    assert found["loaded"] == []
    assert found["tuned"] == [True, [64, 512], {"BLOCK_COLS": 512, "num_warps": 1}]
    assert found["ragged"] == [False, [64, 1024], {"BLOCK_COLS": 1024, "num_warps": 2}]
    assert found["tuned attention"][:2] == [True, [1, 2, 2, 128, 128, 64]]


@pytest.mark.parametrize("triton", other_tritons(), ids=lambda path: path.name)
def test_it_runs_with_other_versions_of_triton(exported, triton):
    found = run_package(
        exported,
        """
import triton
kernels.use_device("NVIDIA H200")
errors = [softmax_error(64, 512), softmax_error(3, 777), *attention_errors(1, 2, 2, 64, 64, 64, True)]
choice = kernels.best("softmax", torch.float16, (64, 512), (), -1)
print(json.dumps({"errors": errors, "proven": choice.proven, "triton": triton.__version__}))
""",
        triton,
    )
    assert max(found["errors"]) < 3e-3
    assert found["proven"] is True and str(found["triton"]) == triton.name


def test_opcheck_and_torch_compile_accept_it(exported):
    found = run_package(
        exported,
        """
kernels.use_device("NVIDIA H200")
x = torch.randn(8, 512, dtype=torch.float16)
q = torch.randn(1, 2, 64, 64, dtype=torch.float16)
checks = [
    torch.library.opcheck(torch.ops.tuned_kernels.softmax.default, (x,)),
    torch.library.opcheck(torch.ops.tuned_kernels.softmax.default, (x[:, ::2],)),
    torch.library.opcheck(torch.ops.tuned_kernels.attention_fwd.default, (q, q, q, True, None, False)),
]
compiled = torch.compile(lambda x, q: (kernels.softmax(x * 2) + 1, kernels.attention_fwd(q, q, q)), fullgraph=True,
                         backend="aot_eager")
soft, (out, lse) = compiled(x, q)
print(json.dumps({
    "checks": sorted({str(result) for check in checks for result in check.values()}),
    "softmax": (soft - (torch.softmax(x * 2, -1) + 1)).abs().max().item(),
    "attention": (out - torch.nn.functional.scaled_dot_product_attention(q, q, q)).abs().max().item(),
}))
""",
    )
    assert found["checks"] == ["SUCCESS"]
    assert found["softmax"] < 1e-3 and found["attention"] < 2e-3


def test_nothing_is_benchmarked_and_one_kernel_is_launched(exported):
    found = run_package(
        exported,
        """
kernels.use_device("NVIDIA H200")
import triton
def refuse(*words, **more): raise AssertionError("a benchmark")
triton.testing.do_bench = refuse
calls = []
choice = kernels.best("softmax", torch.float16, (8, 512), (), -1)
inner, choice.launch = choice.launch, lambda *tensors, **more: (calls.append(more), inner(*tensors, **more))
softmax_error(8, 512)
print(json.dumps({"calls": calls}))
""",
    )
    assert found == {"calls": [{"BLOCK_COLS": 512, "num_warps": 1}]}


WARNED = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    errors = [softmax_error(64, 512), softmax_error(64, 512), softmax_error(8, 300)]
said = [str(w.message) for w in caught]
print(json.dumps({"errors": errors, "said": said, "chosen": chosen("softmax", torch.float16, 64, 512)}))
"""


def damaged(package: Path, setup: str = 'kernels.use_device("NVIDIA H200")\n') -> dict[str, object]:
    found = run_package(package, setup + WARNED)
    assert max(found["errors"]) < 3e-4, "a wrong result"
    return found


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("_tables.py", '"BLOCK_COLS": 512', '"BLOCK_COLS": 256'),  # would leave half of each row out
        ("_tables.py", "DIGEST = ", ""),
        ("_rules.py", "next_power_of_2(n):\n", "next_power_of_2(n):\n    return 256\n"),
    ],
)
def test_tables_that_were_changed_are_not_used(package, name, before, after):
    path = package / name
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    found = damaged(package, setup="kernels._lookup._pretended = 'NVIDIA H200'\n")
    assert found["chosen"] is None
    assert len(found["said"]) == 1 and "torch computes instead. Export again." in found["said"][0]


def test_tables_that_were_cut_off_are_not_used(package):
    path = package / "_tables.py"
    path.write_text(path.read_text().partition("UNSET")[0] + "UNSET = {")
    found = damaged(package, setup="kernels._lookup._pretended = 'NVIDIA H200'\n")
    assert found["chosen"] is None and "SyntaxError" in found["said"][0]


def test_a_kernel_that_was_changed_is_not_used(package):
    (path,) = (package / "variants").glob("softmax_*.py")
    path.write_text(path.read_text().replace("tl.sum(", "2 * tl.sum(", 1))
    found = damaged(package)
    assert found["chosen"] is None
    assert any("was changed since it was exported" in text for text in found["said"])


def test_a_kernel_that_does_not_compile_any_more_is_said_once_and_torch_computes(package):
    found = damaged(
        package,
        """
kernels.use_device("NVIDIA H200")
choice = kernels.best("softmax", torch.float16, (64, 512), (), -1)
def launch(*tensors, **more): raise RuntimeError("PassManager::run failed\\nmore")
choice.launch = launch
""",
    )
    about = [text for text in found["said"] if "does not run here" in text]
    assert len(about) == 1
    assert "RuntimeError: PassManager::run failed)" in about[0] and "torch computes it instead" in about[0]


def on_a_gpu(name: str, **changes: int) -> str:
    """Lines that make tensors of the CPU look like those of this GPU."""
    return f"""
from tuned_kernels import _device, _lookup
facts = dict(_lookup._tables()[0]["facts"], **{changes!r})
memory = facts.pop("memory_bytes", _lookup._tables()[0]["memory_bytes"])
_device.has_gpu = lambda: True
_device.describe, _device.architecture = (lambda index: ({name!r}, facts, memory)), (lambda index: facts["capability"])
inner = _lookup.best
import tuned_kernels._softmax as module
module.best = lambda operator, dtype, shape, options, device: inner(operator, dtype, shape, options, 0)
kernels.best = lambda operator, dtype, shape, options, device: inner(operator, dtype, shape, options, 0)
"""


def test_without_a_gpu_the_default_device_is_the_cpu(exported):
    found = run_package(
        exported,
        """
torch.cuda.is_available = lambda: False
call = "softmax", torch.float16, (64, 512)
before = kernels.best(*call)
kernels.use_device("NVIDIA H200")
print(json.dumps({"before": before, "after": list(kernels.best(*call).shape)}))
""",
    )
    assert found == {"before": None, "after": [64, 512]}


def test_another_gpu_of_the_architecture_takes_the_configs_with_its_own_limits(exported):
    found = damaged(exported, on_a_gpu("NVIDIA GH200 480GB", sms=144))
    assert found["chosen"] == [False, [64, 512], {"BLOCK_COLS": 512, "num_warps": 1}]
    assert found["said"] == [
        "no kernel was tuned for this NVIDIA GH200 480GB as it is here; the configs of NVIDIA H200 are taken, which "
        "has its architecture and may have other best ones"
    ]


def test_a_gpu_of_the_same_name_and_other_limits_is_another(exported):
    found = damaged(exported, on_a_gpu("NVIDIA H200", l2_bytes=31_457_280, sms=66))
    assert found["chosen"][0] is False
    assert "this NVIDIA H200 as it is here" in found["said"][0]


def test_a_gpu_of_the_same_name_and_other_memory_takes_the_configs_and_says_so(exported):
    found = damaged(exported, on_a_gpu("NVIDIA H200", memory_bytes=80 << 30))
    assert found["chosen"] == [True, [64, 512], {"BLOCK_COLS": 512, "num_warps": 1}]
    assert found["said"] == [
        "this NVIDIA H200 has 80 GiB, and the one that was tuned 140: another model of this name may have other best "
        "configs. Tune on it, and export again."
    ]


def test_no_config_is_taken_for_more_elements_than_addresses_were_checked_with(exported):
    found = run_package(
        exported,
        """
kernels.use_device("NVIDIA H200")
warnings.simplefilter("ignore")
print(json.dumps({"below": chosen("softmax", torch.float16, 2**19, 4095) is not None,
                  "above": chosen("softmax", torch.float16, 2**20, 4095)}))
""",
    )
    assert found == {"below": True, "above": None}


def test_a_gpu_of_another_architecture_gets_torch(exported):
    found = damaged(exported, on_a_gpu("NVIDIA A100-SXM4-80GB", capability=80))
    assert found["chosen"] is None
    assert found["said"] == [
        "no kernel was tuned for NVIDIA A100-SXM4-80GB; torch computes instead. Tune on it, and export again."
    ]


def test_the_cpu_gets_torch_in_silence_and_unknown_devices_are_refused(exported):
    found = run_package(
        exported,
        """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    error = softmax_error(64, 512)
try:
    kernels.use_device("NVIDIA H300")
except ValueError as refused:
    said = str(refused)
try:
    kernels.softmax(torch.zeros(2, 3), dim=0)
except ValueError as refused:
    axis = str(refused)
print(json.dumps({"error": error, "said": len(caught), "refused": said, "axis": axis}))
""",
        interpret=False,
    )
    assert found["error"] < 3e-4 and found["said"] == 0
    assert found["refused"] == "no kernel was tuned on 'NVIDIA H300'; this package has NVIDIA H200"
    assert found["axis"] == "the softmax runs over the last axis (dim=-1), but got dim=0"


def test_several_devices_are_in_one_package_and_an_estimate_says_so(tmp_path):
    database = tmp_path / "tuner.db"
    store_winner(database, softmax(8, 512), "template=whole_row,num_warps=2")
    store_winner(database, softmax(8, 512), "template=whole_row,num_warps=4", device=H100)
    result = tuner.export("python", tmp_path / "both", db=str(database))
    assert result.entries == 2
    text = (tmp_path / "both" / "__init__.py").read_text()
    assert "Tuned on: NVIDIA H100 80GB HBM3 (sm_90), NVIDIA H200 (sm_90)." in text


def test_problems_that_no_call_asks_for_are_left_out(tmp_path):
    database = tmp_path / "tuner.db"
    store_winner(database, softmax(8, 512), "template=whole_row,num_warps=2")
    store_winner(database, softmax(8, 512, row_stride=600), "template=whole_row,num_warps=4")
    result = tuner.export("python", tmp_path / "kernels", db=str(database))
    assert [item.why for item in result.left_out] == ["row_stride is not cols, as it is in every call of the package"]


def test_the_folder_must_be_a_name_that_can_be_imported(winners, tmp_path):
    with pytest.raises(
        UsageError, match="--output: tuned-kernels cannot be imported; give a name such as tuned_kernels"
    ):
        tuner.export("python", tmp_path / "tuned-kernels", db=str(winners))


def test_it_chooses_as_the_rule_that_was_judged_does(winners, exported):
    # The loss that an export prints is that of `fit_nearest`; what runs is the package's own code.
    with Store.open(str(winners), write=False) as store:
        entries = select(store, Wanted("softmax")).entries
    weights = fit_nearest("softmax", ("rows", "cols"), entries).weights
    draw = random.Random(0)
    shapes = [(int(2 ** draw.uniform(0, 15)), int(2 ** draw.uniform(0, 17))) for _ in range(300)]

    def distance(entry: Entry, rows: int, cols: int) -> tuple[float, tuple[int, ...]]:
        sizes = entry.problem.sizes
        terms = {"rows": rows / sizes["rows"], "cols": cols / sizes["cols"]}
        return round(sum(weights[a] * abs(math.log2(t)) for a, t in terms.items()), 9), (sizes["rows"], sizes["cols"])

    expected: list[object] = []
    for rows, cols in shapes:
        problem = softmax(rows, cols)
        moved = [(e, e.rules.config_at(e.winner.config, problem, e.device)) for e in entries if e.rules is not None]
        near = min((pair for pair in moved if pair[1]), key=lambda p: distance(p[0], rows, cols), default=None)
        expected.append(None if near is None or near[1] is None else dict(near[1].launch))
    found = run_package(
        exported,
        f"""
kernels.use_device("NVIDIA H200")
warnings.simplefilter("ignore")
got = [kernels.best("softmax", torch.float16, shape, (), -1) for shape in {shapes!r}]
print(json.dumps({{"got": [None if choice is None else choice.arguments for choice in got]}}))
""",
    )
    assert found["got"] == expected
    assert 20 < sum(item is None for item in expected) < 250


def test_a_gradient_is_refused_and_not_left_out(exported):
    found = run_package(
        exported,
        """
kernels.use_device("NVIDIA H200")
x = torch.randn(4, 512, dtype=torch.float16, requires_grad=True)
try:
    kernels.softmax(x).sum().backward()
except RuntimeError as error:
    said = str(error).splitlines()[0]
print(json.dumps({"said": said}))
""",
    )
    assert "has no gradients: call it under torch.no_grad()" in str(found["said"])
