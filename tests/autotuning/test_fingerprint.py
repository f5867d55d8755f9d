"""A fingerprint changes with all that a callable depends on, is the same in every process, or says what is unknown."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import triton

import tuner
from tests.autotuning import kernels
from tests.programs import environment
from tuner.autotuning.fingerprint import fingerprint
from tuner.loading import load_source

MODULE = """
import functools
import math
import torch
import triton
import triton.language as tl

EPS = 1e-6
TABLE = {"gain": [1.0, 2.0]}
WEIGHT = torch.ones(3)
STEP = tl.constexpr(3)

def inner(x):
    return x * 2

def helper(x):
    return inner(x) + 1

class Scale:
    factor = 3

    def __init__(self, by):
        self.by = by

    def reference(self, x_ptr):
        return {"y_ptr": x_ptr * self.by * self.factor}

def make(by):
    def reference(x_ptr):
        return {"y_ptr": x_ptr * by}
    return reference

def base(x_ptr, by=2.0):
    return {"y_ptr": helper(x_ptr) * by + EPS * math.pi + TABLE["gain"][0] + WEIGHT.sum()}

chosen = base

@triton.jit
def jit_helper(p, v, K: tl.constexpr = STEP):
    tl.store(p, v * K)

@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    jit_helper(x_ptr, n + STEP)

def launch():
    pass
"""


@pytest.fixture
def known(tmp_path: Path):
    """The fingerprint of one name of the module, of which one piece of text is another; each from a file of its own."""
    count = iter(range(1000))

    def found(name: str = "chosen", old: str = "", new: str = "") -> str:
        assert old in MODULE
        path = tmp_path / str(next(count)) / "module.py"
        path.parent.mkdir()
        path.write_text(MODULE.replace(old, new, 1) if old else MODULE)
        made = fingerprint(reference=getattr(load_source(path), name))
        assert made.lasting, made.unknown
        return made.digest

    return found


CHANGES = [
    ("a helper's helper", "chosen", "return x * 2", "return x * 3"),
    ("a global", "chosen", "EPS = 1e-6", "EPS = 1e-5"),
    ("a global's type", "chosen", "EPS = 1e-6", "EPS = 0"),
    ("something within a global", "chosen", "[1.0, 2.0]", "[1.5, 2.0]"),
    ("a tensor's contents", "chosen", "torch.ones(3)", "torch.tensor([1.0, 1.0, 2.0])"),
    ("a tensor's dtype", "chosen", "torch.ones(3)", "torch.ones(3).half()"),
    ("a default", "chosen", "by=2.0", "by=4.0"),
    ("an attribute of a library", "chosen", "math.pi", "math.e"),
    ("a closure", "chosen", "chosen = base", "chosen = make(2)"),
    ("a partial's argument", "chosen", "chosen = base", "chosen = functools.partial(base, by=3.0)"),
    ("a bound method", "chosen", "chosen = base", "chosen = Scale(1).reference"),
    ("a lambda", "chosen", "chosen = base", "chosen = lambda x_ptr: base(x_ptr)"),
    ("a kernel's constant", "kernel", "tl.constexpr(3)", "tl.constexpr(4)"),
    ("a kernel's helper", "kernel", "v * K", "v + K"),
    ("a kernel's helper's default", "kernel", "tl.constexpr = STEP", "tl.constexpr = 5"),
    ("a helper's options", "kernel", "@triton.jit\ndef jit_helper", "@triton.jit(noinline=True)\ndef jit_helper"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_it_changes_with_what_the_function_depends_on(known, name, old, new):
    assert known(name, old, new) != known(name)


def test_closures_partials_and_selves_are_told_apart_by_what_they_hold(known):
    texts = [
        f"chosen = {text}"
        for text in (
            "make(2)", "make(2.0)", "make(3)", "functools.partial(base, by=3)", "functools.partial(base, by=True)",
            "functools.partial(base, by=1)", "Scale(1).reference", "Scale(2).reference", "Scale(1)",
            "functools.partial(base)", "functools.lru_cache(base)", "make(helper)", "make(inner)", "make(EPS)",
        )
    ]  # fmt: skip
    assert len({known("chosen", "chosen = base", text) for text in texts}) == len(texts)
    methods = [known("chosen", "chosen = base", "chosen = Scale(1).reference")]
    path_changes = [("factor = 3", "factor = 4"), ("* self.by *", "+ self.by *")]
    for old, new in path_changes:
        methods.append(known("Scale", old, new))
    assert len({*methods, known("Scale")}) == 4


def test_what_it_does_not_depend_on_and_where_it_stands_change_nothing(known):
    for old, new in (
        ("import math\n", "import math\n\n# more\nOTHER = 5\n"),
        ("def helper(x):", "def helper(x):  # why"),
        ("class Scale:", "class Scale2:"),
        ("def make(by):", "def make2(by):"),
    ):
        assert known("chosen", old, new) == known()
        assert known("kernel", old, new) == known("kernel")


def test_two_lambdas_of_one_line_are_two():
    first, second = (lambda x: x + 1), (lambda x: x + 2)
    assert fingerprint(r=first) != fingerprint(r=second)
    assert fingerprint(r=first) == fingerprint(r=lambda x: x + 1)


def test_a_module_attribute_counts_and_so_does_a_module_that_is_passed_on(tmp_path, monkeypatch):
    (tmp_path / "own_settings_a.py").write_text("GAIN = 2\nOTHER = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_settings_a as settings  # type: ignore[import-not-found]

    def by_attribute(x):
        return x * settings.GAIN

    def whole(x):
        return getattr(settings, "GA" + "IN")

    def inside(x):
        import own_settings_a

        return own_settings_a.GAIN

    def from_inside(x):
        from own_settings_a import GAIN

        return GAIN

    everything = (by_attribute, whole, inside, from_inside)
    before = [fingerprint(r=f) for f in everything]
    settings.OTHER = 2
    other = [fingerprint(r=f) for f in everything]
    assert [a == b for a, b in zip(before, other, strict=True)] == [True, False, False, True]
    settings.GAIN = 3
    assert not {*before, *other} & {fingerprint(r=f) for f in everything}


class Kind(enum.Enum):
    A, B = 1, 2


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    gain: float


Point = collections.namedtuple("Point", "x y")  # as users write it


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Kind.A, Kind.B),
        (Slotted(1.0), Slotted(2.0)),
        (Point(1, 2), Point(2, 1)),
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
        ({1, 2}, {1, 3}),
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("1", 1),
        ([1, 2], (1, 2)),
        (torch.float16, torch.bfloat16),
        (torch.nn.functional.softmax, torch.nn.functional.log_softmax),
        (torch.ops.aten.add.Tensor, torch.ops.aten.sub.Tensor),
        (int, float),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_values_are_told_apart_by_type_and_contents(one, other):
    again = {1, 2} if one == {2, 1} else one
    found = [fingerprint(r=functools.partial(print, v)) for v in (one, other, again)]
    assert found[0].lasting and found[1].lasting
    assert found[0] != found[1] and found[0] == found[2]


class Lazy:
    """As proxies for what is there only later are."""

    @property
    def __class__(self):
        raise RuntimeError("nothing is bound yet")


LOG = logging.getLogger(__name__)
MODULE_OF_WEIGHTS = torch.nn.Linear(2, 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda n: triton.cdiv(n, triton.next_power_of_2(n)),
        lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x),
        lambda x: torch.einsum("ij,jk->ik", x, x),
        lambda x: x.to(torch.float8_e4m3fn).float(),
        lambda x: LOG.info("called") or MODULE_OF_WEIGHTS(x),
        torch.compile(lambda x: x + 1),
        torch.no_grad()(lambda x: x + 1),
        triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})(kernels.through_helper),
        tuner.autotune({"BLOCK": [1, 2]}, key=["n"])(kernels.twice),
        kernels.product,
    ],
    ids=["cdiv", "attention", "einsum", "fp8", "log and module", "compiled", "no_grad", "heuristics", "tuned", "dot"],
)
def test_what_references_kernels_and_heuristics_are_made_of_is_known(function):
    found = fingerprint(reference=function)
    assert found.lasting, found.unknown
    assert found == fingerprint(reference=function)


def test_what_raises_when_it_is_looked_at_is_unknown_and_no_error():
    lazy = Lazy()
    found = fingerprint(reference=lambda x: lazy)
    assert found.unknown == "reference, lazy: it cannot be read (RuntimeError)"


def test_what_refers_to_itself_has_one_too():
    def down(n):
        return 0 if n == 0 else down(n - 1)

    ring: list[object] = []
    ring.append(ring)
    assert fingerprint(r=down).lasting and fingerprint(r=lambda: ring).lasting


def _opens(x):
    return open(x)


def _reads_the_environment(x):
    return os.environ["HOME"]


def _evaluates(x):
    return eval(x)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (threading.Lock(), "a _thread.lock keeps what it is where it cannot be read"),
        (torch.Generator(), "a torch._C.Generator keeps what it is where it cannot be read"),
        (torch.empty(1 << 25, dtype=torch.uint8), "a torch.Tensor keeps what it is where it cannot be read"),
        (_opens, "open: it uses io.open"),
        (_evaluates, "eval: it uses eval"),
        (_reads_the_environment, "os.environ: it depends on environment variables"),
        ({frozenset([print])}, "a set of other things than plain data"),
        ([[i] for i in range(20_000)], "more than 10000 objects are reached"),
    ],
    ids=["lock", "generator", "large tensor", "open", "eval", "environment", "set", "many"],
)
def test_what_cannot_be_known_is_said_and_holds_in_this_process_alone(monkeypatch, value, why):
    def reference(x_ptr):
        return value

    here = fingerprint(reference=reference)
    assert not here.lasting and here.unknown.startswith("reference, value") and why in here.unknown
    assert here == fingerprint(reference=reference)
    monkeypatch.setattr("tuner.autotuning.fingerprint._RUN", "another process")
    assert here.digest != fingerprint(reference=reference).digest


def test_it_is_the_same_in_another_process(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    code = (
        "import sys\nfrom tuner.loading import load_source\nfrom tuner.autotuning.fingerprint import fingerprint\n"
        "module = load_source(__import__('pathlib').Path(sys.argv[1]))\n"
        "print(fingerprint(a=module.base, b=module.kernel, c=module.Scale, d={'x', 'y', 'z'}).digest)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True,
        env={**environment(), "PYTHONHASHSEED": "7"},
    ).stdout  # fmt: skip
    module = load_source(path)
    assert said == f"{fingerprint(a=module.base, b=module.kernel, c=module.Scale, d={'x', 'y', 'z'}).digest}\n"
