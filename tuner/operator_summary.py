"""An operator as it is listed, with what its search space holds for an example problem."""

from __future__ import annotations

from tuner.device import Device
from tuner.operators import get
from tuner.results import OperatorSummary
from tuner.space import load_space


def operator_summary(name: str, device: Device) -> OperatorSummary:
    """The operator ``name``, with the number of valid configs of its example on ``device``."""
    operator, chosen = get(name), load_space(name)
    example = operator.example()
    return OperatorSummary(
        name=name,
        summary=operator.summary,
        shape_parameters=operator.shape_parameters,
        options=operator.options,
        dtypes=operator.dtypes,
        templates=tuple(chosen.templates),
        example=example,
        target=device.name,
        valid_configs=chosen.bind(example, device).size(),
    )
