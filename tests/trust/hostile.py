"""Values that somebody who means harm would put into a database, a table or a YAML file."""

from __future__ import annotations

ACTING = frozenset(
    [
        *(chr(code) for code in range(0x20) if chr(code) not in "\t\n"),
        *(chr(code) for code in range(0x7F, 0xA0)),
        *"\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff",
        *(chr(code) for code in range(0xD800, 0xE000)),
    ]
)
"""What a terminal acts on, or what hides or reorders the text beside it."""

HOSTILE_TEXTS = (
    "\x1b[2J\x1b[H\x1b[31mwiped\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b]8;;file:///etc/passwd\x1b\\click\x1b]8;;\x1b\\",
    "\x9b31mC1",
    "over\rwritten",
    "back\x08\x08\x08\x7f",
    "user\u202egnp.exe",
    "zero\u200bwidth\ufeff",
    "lone \ud800 surrogate",
    "[bold red]markup[/bold red] [link=file:///etc/passwd]x[/link] [/]",
    "nul\x00 inside",
    "{{ 7 * 7 }} {% for x in y %} ${HOME} $(id) `id` %s %n",
    '"""\nimport os\nos.system("id")\n"""',
    "'; DROP TABLE tuner_trial; --",
)

HOSTILE_PATHS = (
    "../../outside",
    "/etc/passwd",
    "/dev/zero",
    "..",
    ".",
    "~/outside",
    "a/../../outside",
    "variants/../../outside",
    "x\x00y",
    "con\ninjected",
    "",
)

HOSTILE_NUMBERS = (
    0,
    -1,
    2**31,
    2**63 - 1,
    -(2**63),
    10**400,
    0.0,
    -1.5,
    1e308,
    5e-324,
    float("inf"),
    float("-inf"),
    float("nan"),
)
