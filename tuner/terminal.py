"""Text from databases and files, made fit to be printed: nothing in it moves a cursor or hides what is there."""

from __future__ import annotations

import re

# C0 but tab and newline, DEL and C1 (escape sequences), what reorders or hides text, and lone surrogates, which no
# encoding takes.
_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def harmless(text: str) -> str:
    r"""``text`` with every character that a terminal acts on written as it is in Python (``\x1b``, ``\u202e``)."""
    return _ACTING.sub(lambda found: _escape(found[0]), text)


def harmless_json(text: str) -> str:
    r"""JSON that says the same as ``text``, with what JSON leaves as it is and a terminal acts on as ``\u009b``."""
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
