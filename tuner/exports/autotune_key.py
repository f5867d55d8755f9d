"""Winners as an autotuner knows them: a kernel's name, the key of a call, and a ``triton.Config``.

The key is Triton's own: the values of the arguments that the decorator's ``key`` names, in its order, then the dtype of
every tensor argument, in the kernel's order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.config import Value
from tuner.errors import UsageError
from tuner.exports.device_names import model_name
from tuner.exports.entry import Entry, LeftOut
from tuner.exports.kernel_call import LAUNCH_OPTIONS, KernelCall, NotOneKernelError, kernel_call
from tuner.exports.losses import one_a_place
from tuner.naming import listed
from tuner.operators import get

TORCH_DTYPES = {
    "bf16": "torch.bfloat16",
    "fp16": "torch.float16",
    "fp32": "torch.float32",
    "fp8": "torch.float8_e4m3fn",
    "int64": "torch.int64",
}

KEY_HELP = (
    "the `key` of your @triton.autotune, with + between names: rows+cols, or argument:name where an argument "
    "is not called as in the problem (N:cols). Default: the arguments that are called as in the problem"
)

Key = tuple[int | float | bool | str, ...]


@dataclass(frozen=True)
class Tuned:
    """One entry for an autotuner. ``kwargs`` are compile-time arguments; ``options`` has num_warps and the like."""

    entry: Entry
    kernel: str
    key_names: tuple[str, ...]
    key: Key
    kwargs: Mapping[str, Value]
    options: Mapping[str, Value]


def tuned(entries: Sequence[Entry], key_setting: str | None, *, any_numbers: bool) -> tuple[list[Tuned], list[LeftOut]]:
    """What of ``entries`` an autotuner can be given, and what not.

    What follows from the problem (derived values, switches that the problem fixes) is the caller's to pass, as without
    this project; what the search chose goes into the config. ``any_numbers``: the consumer may take a config for any
    numbers in the key, so one that is right at some sizes only is left out. Raises ``UsageError`` where ``key_setting``
    cannot be meant.
    """
    found: list[Tuned] = []
    left_out: list[LeftOut] = []
    for entry in entries:
        try:
            found.append(_tuned(entry, key_setting, any_numbers))
        except NotOneKernelError as error:
            label = f"{entry.problem.label} on {entry.device.name}"
            left_out.append(LeftOut(label, f"template {entry.winner.config.template}: {error}"))
    kept, alike = _one_a_key(found)
    return kept, [*left_out, *alike]


def _one_a_key(found: Sequence[Tuned]) -> tuple[list[Tuned], list[LeftOut]]:
    """An autotuner tells calls apart by device name and key alone."""
    return one_a_place(
        found,
        lambda item: (model_name(item.entry.device), item.kernel, item.key),
        lambda kept: f"has the key of {kept.entry.problem.label} ({', '.join(kept.key_names)}), whose config is used",
    )


def _tuned(entry: Entry, key_setting: str | None, any_numbers: bool) -> Tuned:
    config = entry.winner.config
    if entry.rules is None:
        raise NotOneKernelError("its search space cannot be read any more, so where it may be used is not known")
    call = kernel_call(entry.variant, config.chosen)
    names = _key_names(call, entry, key_setting)
    for axis in entry.rules.must_cover(config.chosen):
        if any_numbers:
            raise NotOneKernelError(f"its tiles must cover {axis}, and the consumer may take it for any size")
        if axis not in [name for _, name in names]:
            raise NotOneKernelError(f"its tiles must cover {axis}, which is not part of the key")
    values = tuple(_given(entry, name) for _, name in names)
    dtypes = tuple(TORCH_DTYPES[_dtype(entry, call.tensors[name])] for name in call.arguments if name in call.tensors)
    chosen = {name: config.values[name] for name in config.chosen}
    return Tuned(
        entry=entry,
        kernel=call.kernel,
        key_names=tuple(argument for argument, _ in names),
        key=(*values, *dtypes),
        kwargs={name: value for name, value in sorted(chosen.items()) if name not in LAUNCH_OPTIONS},
        options={name: value for name, value in sorted(chosen.items()) if name in LAUNCH_OPTIONS},
    )


def _key_names(call: KernelCall, entry: Entry, setting: str | None) -> list[tuple[str, str]]:
    """Pairs of a kernel's argument and the name of its value in the problem."""
    known = (*entry.problem.sizes, *entry.problem.settings)
    if setting is None:
        pairs = [(argument, argument.lower()) for argument in call.arguments if argument.lower() in known]
        if not pairs:
            raise NotOneKernelError(
                f"no argument of {call.kernel} is called as in the problem ({listed(known)}); "
                "say which are, as in --set key=N:cols"
            )
        return pairs
    pairs = []
    for word in setting.split("+"):
        argument, _, name = (part.strip() for part in word.partition(":"))
        name = name or argument.lower()
        if not argument or name not in known:
            raise UsageError(f"--set key: {word!r} names nothing of the problem; it has {listed(known)}")
        pairs.append((argument, name))
    return pairs


def _given(entry: Entry, name: str) -> int | float | bool | str:
    """What the launch is given for a size or option: of an option that the problem leaves out the operator's number."""
    value = {**entry.problem.sizes, **entry.problem.settings}[name]
    return get(entry.problem.operator).scalars(entry.problem)[name] if value is None else value


def _dtype(entry: Entry, tensor: str) -> str:
    outputs = get(entry.problem.operator).output_specs(entry.problem)
    return outputs[tensor].dtype if tensor in outputs else entry.problem.dtype
