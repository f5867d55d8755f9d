"""What one check costs the host: operations that it dispatches, each of which takes a launch on a GPU."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from tests.fake_gpu import FakeGpu
from tuner.check_plan import plan
from tuner.family_check import FamilyCheck
from tuner.operators import get
from tuner.precision import PrecisionProfile
from tuner.reading import Reading
from tuner.reference_cache import ReferenceCache

MOST_OPERATIONS = 45  # of a small family, without the launches themselves; they take 5 us of the host each
VIEWS = ("view", "slice", "as_strided", "select", "split_with_sizes", "unbind", "alias", "detach")
WAITS = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero", "_to_copy")
ATTENTION = get("attention_fwd")


class Counting(TorchDispatchMode):
    """Counts what is dispatched, views apart."""

    def __init__(self):
        super().__init__()
        self.names = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.partition(".")[0]
        self.names[name] += name not in VIEWS
        return func(*args, **(kwargs or {}))


def write(q, k, v, out, lse, scale):
    with _disable_current_modes():
        k, v = (t.double().repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
        s = scale * q.double() @ k.transpose(2, 3)
        out.copy_(torch.softmax(s, -1) @ v)
        lse.copy_(torch.logsumexp(s, -1).masked_fill(s.isposinf().any(-1), float("nan")))


@pytest.fixture(scope="module")
def counted():
    """By planned check of the plan of a GPU: what its launches and comparisons dispatch, and its report."""
    problem = ATTENTION.problem({"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 192, "head_dim": 16}, "fp16")
    profile = PrecisionProfile("fp16", "fp16", p="fp16", dot="16bit", tiles=6)
    gpu, cache = FakeGpu(), ReferenceCache()

    def launch(**tensors):
        gpu.do(lambda: write(**tensors))

    found = []
    for planned in plan(ATTENTION, problem, {"q_len": 32, "kv_len": 32}, {}, profile, full_size=True).checks:
        # Of this seed both the sequences and the heads change places, which takes the most copies.
        variation = ATTENTION.variation(planned.problem, "cpu", 8)
        one = FamilyCheck(launch, ATTENTION, planned, "cpu", 0, variation, cache, gpu)
        one.run()  # makes the inputs and the reference
        with Counting() as counting:
            launched = one.start()
        Reading.fetch(launched.readings)
        found.append((planned, counting.names, launched.report(cache)))
    return found


def test_each_family_passes_and_takes_few_operations(counted):
    assert all(report.passed for *_, report in counted)
    taken = {(planned.name, planned.problem.label): names.total() for planned, names, _ in counted}
    assert max(taken.values()) <= MOST_OPERATIONS, taken
    assert min(taken.values()) > 10, "it counts"


def test_nothing_waits_for_the_device_before_the_numbers_are_read_back(counted):
    assert [(planned.name, name) for planned, names, _ in counted for name in WAITS if names[name]] == []
