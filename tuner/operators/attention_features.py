"""What an attention does beside scaling and causal masking, read from its problem's options. Needs no torch.

Every feature is off where its option is left out; ``Features()`` is an attention without any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.operators.base import Option
from tuner.operators.small_problems import integer_class
from tuner.problem import Scalar

FEATURES = (
    Option("window_left", "count", None, "how many keys before its own place a query sees (default all)", late=True),
    Option("window_right", "count", None, "how many keys after its own place a query sees (default all)", late=True),
    Option("softcap", "float", None, "logits are softcap tanh(scale q k^T / softcap)", zero_is_off=True, late=True),
    Option("sinks", "bool", False, "each head has a logit without a key, which joins the denominator", late=True),
    Option("alibi", "bool", False, "a logit loses its head's slope times |query's place - key|", late=True),
    Option(
        "bias",
        "choice",
        "none",
        "what is added to the logits: one matrix, or one for each head, sequence, or both",
        choices=("none", "one", "heads", "batch", "both"),
        late=True,
    ),
    Option(
        "dropout",
        "float",
        None,
        "the chance of each weight to go, others being scaled by 1 / (1 - dropout)",
        zero_is_off=True,
        below=1.0,
        late=True,
    ),
)
"""The options of ``attention_fwd`` that are features."""
FEATURE_TENSORS = ("sinks", "slopes", "bias", "dropout_seed")
"""The tensors that some of them take."""


@dataclass(frozen=True)
class Features:
    """``left``, ``right``: how many keys before and after its own place a query sees; None for all of them.

    The place of query i is key i + kv_len - q_len. A causal attention has a ``right`` of 0. ``softcap``: what bounds
    the logits; None for nothing. ``sinks``, ``alibi``: whether each head has a sink, a slope. ``bias``: whose bias
    differs, a word of the option. ``dropout``: the chance of a weight to go; None where all stay.
    """

    left: int | None = None
    right: int | None = None
    softcap: float | None = None
    sinks: bool = False
    alibi: bool = False
    bias: str = "none"
    dropout: float | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Scalar]) -> Features:
        """Those of a problem with these options."""
        right = 0 if settings.get("causal", True) else settings.get("window_right")
        softcap, dropout = settings.get("softcap"), settings.get("dropout")
        return cls(
            left=_count(settings.get("window_left")),
            right=_count(right),
            softcap=None if softcap is None else float(softcap),
            sinks=bool(settings.get("sinks")),
            alibi=bool(settings.get("alibi")),
            bias=str(settings.get("bias", "none")),
            dropout=None if dropout is None else float(dropout),
        )

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of the tensors that ``launch`` takes beside those of every attention."""
        there = {"sinks": self.sinks, "slopes": self.alibi, "bias": self.bias != "none"}
        there["dropout_seed"] = self.dropout is not None
        return tuple(name for name in FEATURE_TENSORS if there[name])

    def bias_shape(self, sizes: Mapping[str, int]) -> tuple[int, int, int, int]:
        """Of the bias: [batch or 1, heads or 1, q_len, kv_len]."""
        batch = sizes["batch"] if self.bias in ("batch", "both") else 1
        heads = sizes["heads"] if self.bias in ("heads", "both") else 1
        return batch, heads, sizes["q_len"], sizes["kv_len"]

    @property
    def windowed(self) -> bool:
        """Whether a query may see fewer keys than all up to its own place, or all."""
        return self.left is not None or self.right not in (None, 0)

    def scalars(self, causal: bool) -> dict[str, float]:
        """The numbers that ``launch`` takes: a window's ends, -1 where there is none (where causal no right one); the
        cap; the chance of a weight to go."""
        found: dict[str, float] = {} if self.softcap is None else {"softcap": self.softcap}
        if self.windowed:
            ends = {"window_left": self.left} if causal else {"window_left": self.left, "window_right": self.right}
            found |= {name: -1 if end is None else end for name, end in ends.items()}
        return found if self.dropout is None else {**found, "dropout_p": self.dropout}

    def seen(self, query: int, q_len: int, kv_len: int) -> tuple[int, int]:
        """The first key that ``query`` sees and the one after its last; where it sees none they are no range."""
        place = query + kv_len - q_len
        first = 0 if self.left is None else max(0, place - self.left)
        return first, kv_len if self.right is None else min(kv_len, place + self.right + 1)

    def pairs(self, q_len: int, kv_len: int) -> int:
        """How many pairs of a query and a key that it sees there are."""
        offset = kv_len - q_len
        up_to_last = q_len * kv_len if self.right is None else _keys_below(offset + self.right + 1, q_len, kv_len)
        return up_to_last - (0 if self.left is None else _keys_below(offset - self.left, q_len, kv_len))

    def keys(self, q_len: int, kv_len: int) -> int:
        """How many keys some query sees."""
        return max(0, self.seen(q_len - 1, q_len, kv_len)[1] - self.seen(0, q_len, kv_len)[0])

    def widest(self, kv_len: int) -> int:
        """How many keys a query sees at most."""
        return kv_len if self.left is None or self.right is None else min(kv_len, self.left + 1 + self.right)

    def crosses(self, q_len: int, kv_len: int, tile: int) -> bool:
        """Whether some query sees keys of several tiles of ``tile`` keys."""
        if self.left is None or kv_len <= tile:
            return kv_len > tile
        # Of the last queries the places have every remainder that there is.
        some = (self.seen(query, q_len, kv_len) for query in range(max(0, q_len - 2 * tile), q_len))
        return any(first // tile < (past - 1) // tile for first, past in some if first < past)

    def dead(self, q_len: int, kv_len: int) -> int:
        """How many queries, which are the first ones, see no key."""
        return 0 if self.right is None else min(q_len, max(0, q_len - kv_len - self.right))


NONE = Features()


def small_features(
    settings: Mapping[str, Scalar],
    shape: Mapping[str, int],
    tiles: Mapping[str, int],
    place: int,
    same_binary: bool,
) -> dict[str, Scalar]:
    """``settings`` for the small problem of this ``shape`` and number: its windows cut tiles, as the tuned one does.

    The first one has whole tiles inside its window, the others windows within a tile, of one key, and across two. With
    ``same_binary`` a window's ends stay in the classes that Triton specialises on. A dropout is as tuned, few, nearly
    all, or so few that every weight stays.
    """
    tile, queries = tiles.get("kv_len", shape["kv_len"]), tiles.get("q_len", shape["q_len"])
    # Tiles of keys begin one key before, and end one key after those that all queries of a tile see.
    whole = queries + 2 * tile
    whole += (queries - 2 + shape["kv_len"] - shape["q_len"] - whole) % tile
    whole -= max(0, -(-(whole - shape["kv_len"] + tile) // tile)) * tile
    lefts = (max(whole, 0), max(1, tile // 3), 0, tile + tile // 2)
    rights = (tile, max(1, tile // 3), tile + tile // 2, 1)
    small = dict(settings)
    if settings.get("dropout") is not None:
        small["dropout"] = (settings["dropout"], 0.17, 1.0 - 2.0**-8, 2.0**-20)[place % 4]
    for name, ends in (("window_left", lefts), ("window_right", rights)):
        tuned = settings.get(name)
        if isinstance(tuned, int):
            end = ends[place % len(ends)]
            end = end if end <= tuned else tuned - (tuned - end) % tile if tuned >= tile else tuned
            small[name] = _like(end, tuned, 16 if name == "window_right" else 0) if same_binary else end
    return small


def _like(end: int, tuned: int, least: int) -> int:
    """A number near ``end`` in the class of ``tuned``, at most that; divisible ones from ``least`` on."""
    wanted = integer_class(tuned)
    if integer_class(end) == wanted and end >= least:
        return end
    return 1 if wanted == "one" else max(least, end // 16 * 16) if wanted == "aligned" else max(2, end - 1)


def _count(value: Scalar) -> int | None:
    assert value is None or isinstance(value, int)
    return value


def _keys_below(first: int, q_len: int, kv_len: int) -> int:
    """The sum over queries i of how many keys lie below ``first + i``."""
    # Those that lie below none, the next ones, which see one more each, and those that see every key.
    none = min(q_len, max(0, -first))
    every = min(q_len - none, max(0, q_len - max(0, kv_len - first)))
    some = q_len - none - every
    lowest = first + none
    return some * lowest + some * (some - 1) // 2 + every * kv_len
