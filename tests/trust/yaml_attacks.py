"""Search spaces, problems files and expressions of strangers."""

from __future__ import annotations

import random
from pathlib import Path

from tests.trust.attempts import Attempt, call
from tests.trust.hostile import HOSTILE_NUMBERS, HOSTILE_PATHS, HOSTILE_TEXTS
from tuner.expression import Expression
from tuner.operators import get
from tuner.problems_file import load_problems
from tuner.space import load_space
from tuner.targets import target

ENGINE_SPACES = Path(__file__).parents[1] / "spaces_engine"
CHOICES = ", ".join(map(str, range(1, 257)))

SPACE = f"""\
operator: softmax
templates:
  small:
    source: {ENGINE_SPACES / "small.py"}
    where: cols <= 4096
    switches: {{DIVIDE: [true, false]}}
    parameters: {{num_warps: [1, 2, 4], A: [1, 2], B: [1, 2]}}
    derived: {{BLOCK_COLS: next_power_of_2(cols)}}
    constraints: [A * B < 4, num_warps <= 4]
    tiles: {{cols: BLOCK_COLS}}
    max_tiles: {{cols: 1}}
    precision: {{tiles: 1}}
    plain: {{DIVIDE: true, num_warps: 1, A: 1, B: 1}}
"""
PROBLEMS = """\
defaults: {dtype: bf16}
problems:
  - operator: softmax
    shape: {rows: 4096, cols: [1024, 32768]}
  - operator: attention_fwd
    shape: {batch: 4, heads: 32, kv_heads: 8, q_len: 4096, head_dim: 128}
    options: {causal: true}
"""
BOMB = "x0: &x0 [a, a, a, a, a, a, a, a, a]\n" + "".join(
    f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]\n" for i in range(1, 30)
)
SNIPPETS = (
    BOMB,
    "&a [*a]",
    "{<<: *a}",
    "!!python/object/apply:os.system ['touch outside']",
    "!!python/object/new:subprocess.Popen [['touch', 'outside']]",
    "!!python/name:os.system",
    "!!binary AAAA",
    "!!timestamp 2026-01-01",
    "!!set {a, b}",
    "[" * 3000,
    "{a: " * 3000,
    "- " * 3000,
    "9" * 5000,
    "1:" * 5000 + "1",
    "0x" + "f" * 5000,
    "1e999999999",
    ".nan",
    "-.inf",
    "1_000" * 1000,
    f"[{CHOICES}]",
    f"{{A: [{CHOICES}], B: [{CHOICES}], C: [{CHOICES}], D: [{CHOICES}]}}",
    "A: 1\n    A: 2",
    "? [a, b]\n: c",
    "\t",
    "%YAML 1.1\n---\n",
    "--- x\n--- y\n",
    "\ufeff",
    "\u0085\u2028",
    "a" * 100_000,
    "# " + "c" * 300_000 + "\n",
    '"' + "\\U0001F600" * 5000 + '"',
    *HOSTILE_TEXTS,
    *HOSTILE_PATHS,
    *map(str, HOSTILE_NUMBERS),
)
EXPRESSIONS = (
    "9**9**9",
    "9**9**9**9**9",
    "2**63 * 2**63",
    "(-8) ** 0.5",
    "1e308 * 10",
    "'a' * 10**9",
    "'a' + 'b' * 99999999",
    "10**64 - 10**64",
    "cdiv(1, 0)",
    "next_power_of_2(2**63)",
    "next_power_of_2(-1)",
    "min(*[1, 2])",
    "__import__('os').system('touch outside')",
    "().__class__.__bases__[0].__subclasses__()",
    "[x for x in range(10**9)]",
    "(lambda: 0)()",
    "f'{cols!r:>999999999}'",
    "cols.__class__",
    "cols if cols else (cols := 1)",
    "(" * 500 + ")" * 500,
    "not " * 300 + "1",
    "-" * 900 + "1",
    "1" + " + 1" * 200,
    "1 < " * 200 + "2",
    "cols in [" + "1, " * 300 + "1]",
    "a" * 900,
    "0x" + "f" * 900,
    "9" * 900,
    "1e" + "9" * 900,
    "1_0" * 300,
    "\x00",
    "\ud800",
    "'\\ud800'",
    "cols\n#",
    "\U0001d4b8\U0001d45c\U0001d4c1\U0001d4c8",
    "int(1e308)",
    "abs(-2**63)",
    "int(nan)",
    "1 if 1 else " * 60 + "1",
    "max(" * 60 + "1, 2" + ", 3)" * 60,
    "yield 1",
    "await x",
    "print('x')",
    "...",
    "b'x'",
    "1j",
    "True is True",
    "cols // 0",
    "cols % 0",
    "0 ** -1",
)


def attack_space(folder: Path, chance: random.Random) -> Attempt:
    """One search space, mutated, read and bound to a problem."""
    path = folder / "space.yaml"
    text = _mutated(SPACE, chance)
    path.write_bytes(text.encode("utf-8", chance.choice(("replace", "surrogatepass"))))

    def use() -> None:
        bound = load_space(path).bind(get("softmax").problem({"rows": 64, "cols": 100}, "fp32"), target("sm_90"))
        bound.size()
        next(bound.configs(), None)
        bound.plain()

    return call(f"space {text[:3000]!r}", use)


def attack_problems(folder: Path, chance: random.Random) -> Attempt:
    """One problems file, mutated and read."""
    path = folder / "problems.yaml"
    text = _mutated(PROBLEMS, chance)
    path.write_bytes(text.encode("utf-8", chance.choice(("replace", "surrogatepass"))))
    return call(f"problems {text[:3000]!r}", lambda: load_problems(path))


def attack_expression(folder: Path, chance: random.Random) -> Attempt:
    """One expression, read and evaluated."""
    text = chance.choice(EXPRESSIONS)
    if chance.random() < 0.5:
        other = chance.choice(EXPRESSIONS)
        text = chance.choice((f"({text}) + ({other})", f"({text}) if ({other}) else cols", f"min({text}, {other})"))
    if chance.random() < 0.3:
        place = chance.randrange(len(text) + 1)
        text = text[:place] + chance.choice("()[]*'\"\\ \n\x00é9.,:=-") + text[place:]
    values = {"cols": chance.choice((0, 1, 4096, 2**63, -(2**63))), "rows": 64, "dtype": "bf16", "scale": None}
    return call(f"expression {text[:3000]!r}", lambda: Expression.parse(text).evaluate(values))


def _mutated(text: str, chance: random.Random) -> str:
    """``text`` with a few random changes: snippets for values, lines doubled or moved, characters changed."""
    lines = text.splitlines()
    for _ in range(chance.choice((1, 1, 2, 4))):
        place = chance.randrange(len(lines))
        line = lines[place]
        pick = chance.randrange(7)
        if pick <= 2:
            start, colon, _ = line.partition(": ")
            snippet = chance.choice(SNIPPETS) if pick else chance.choice(EXPRESSIONS)
            lines[place] = f"{start}{colon or ' '}{snippet}"
        elif pick == 3:
            lines.insert(chance.randrange(len(lines)), line)
        elif pick == 4:
            del lines[place]
            lines = lines or [""]
        elif pick == 5 and line:
            at = chance.randrange(len(line))
            lines[place] = line[:at] + chance.choice("{}[]&*!|>%@`'\"#:-?,\t\x00\x85é0") + line[at + 1 :]
        else:
            lines.insert(0, chance.choice((BOMB, "a: &a [*a]", "%TAG ! tag:yaml.org,2002:python/\n---", "--- !x")))
    return "\n".join(lines) + "\n"
