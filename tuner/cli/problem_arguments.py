"""From the words of a command line to a ``Problem``."""

from __future__ import annotations

from tuner.errors import UsageError
from tuner.problem import Problem, Scalar


def the_operator(operator: str | None, named: str | None) -> str:
    """The operator that a command was given, as an argument or with ``--operator``. Raises ``UsageError``."""
    if operator is not None and named is not None:
        raise UsageError(f"{operator} and --operator {named} both say what is computed; give one of them")
    if operator is None and named is None:
        raise UsageError("Missing argument OPERATOR: what is computed? `tuner operators` lists what is known")
    return str(operator if named is None else named)


def read_problem(
    operator: str,
    shape: list[str] | None,
    dtype: str | None,
    causal: bool | None = None,
    scale: float | None = None,
    extra: list[str] | None = None,
) -> Problem:
    """The validated problem. Raises ``UsageError`` (``ProblemError`` from the operator) with the reason."""
    from tuner.own_operators.files import find

    chosen = find(operator)
    if dtype is None:
        raise UsageError(f"--dtype is missing; {operator} takes {', '.join(chosen.dtypes)}")
    sizes = {name: _size(name, text) for name, text in _pairs("--shape", shape).items()}
    options: dict[str, Scalar] = {name: _scalar(text) for name, text in _pairs("--option", extra).items()}
    for name, value in (("causal", causal), ("scale", scale)):
        if value is None:
            continue
        if name in options:
            raise UsageError(f"{name} is given twice, as --{name} and as --option {name}=...; give it once")
        options[name] = value
    return chosen.problem(sizes, dtype, options)


def _pairs(flag: str, texts: list[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in (w.strip() for text in texts or () for w in text.split(",")):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not (name and equals and value):
            raise UsageError(f"{flag}: cannot read {word!r}; write NAME=VALUE, with commas between several")
        if name in pairs:
            raise UsageError(f"{flag}: {name} is given twice; give it once")
        pairs[name] = value
    return pairs


def _size(name: str, text: str) -> int:
    try:
        return int(text.replace("_", ""))
    except ValueError:
        raise UsageError(f"--shape: {name} must be a whole number, but got {text!r}") from None


def _scalar(text: str) -> Scalar:
    words: dict[str, Scalar] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
