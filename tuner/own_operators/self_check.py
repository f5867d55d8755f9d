"""The self-check of a standalone file of a declared operator: its own reference, taken along."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from tuner.constants import quoted
from tuner.errors import ProblemError
from tuner.numerics import FORMATS, sum_terms
from tuner.own_operators.declaration import INTEGER_DTYPES
from tuner.own_operators.shapes import shape_of
from tuner.problem import Problem
from tuner.source_part import needed

if TYPE_CHECKING:
    from tuner.own_operators.declared import DeclaredOperator

_MOST = 64  # of an axis that nothing depends on; in the interpreter every program costs milliseconds
_TORCH = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}
_TORCH |= {name: f"torch.{name}" for name in INTEGER_DTYPES}

_BLOCK = """if __name__ == "__main__":
    import os
    import sys

{functions}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes, numbers = {sizes}, {numbers}
    torch.manual_seed(0)
    inputs = {{
{inputs}
    }}
{draw}    outputs = {{
{outputs}
    }}
    launch(**inputs, **outputs, **numbers, **CONFIG)
    # The reference, in float64.
    wide = {{name: t.double() if t.is_floating_point() else t for name, t in inputs.items()}}
    expected = {reference}(**wide, **numbers)
    expected = expected if isinstance(expected, dict) else {{{first}: expected}}
    right, said = True, []
    for name, relative, of_largest, floor in {tolerances}:
        error = (outputs[name].double() - expected[name]).abs()
        tolerance = relative * expected[name].abs() + of_largest * expected[name].abs().max() + floor
        at = int((error / tolerance).nan_to_num(nan=float("inf")).argmax())
        right &= bool((error <= tolerance).all())
        said.append(f"{{name}}: error {{error.flatten()[at]:.3e}}, tolerance there {{tolerance.flatten()[at]:.3e}}")
    # Triton's interpreter truncates to bf16 and multiplies its bits: there, an error in bf16 says nothing.
    judged = os.environ.get("TRITON_INTERPRET") != "1" or {dtype} != torch.bfloat16
    verdict = ("OK" if right else "WRONG") if judged else "not judged: bf16 needs a GPU, the interpreter gets it wrong"
    print(f"{label} on {{device}}: {{'; '.join(said)}}: {{verdict}}")
    sys.exit(0 if right or not judged else 1)
"""


def self_check(operator: DeclaredOperator, problem: Problem) -> str:
    """Its text; empty where the reference cannot leave its file, because it uses this project.

    The reduced axis keeps its length, the others are shortened. The tolerance is 2 u |y| for the output's rounding and,
    relative to the largest element, what sums of that length in fp32 (of products in tf32, where inputs are fp32) may
    lose; the error bound of the check is sharper.
    """
    declared, small = operator.declared, _shortened(operator, problem)
    functions = [declared.reference.__name__, *([declared.draw.__name__] if declared.draw else [])]
    if "<lambda>" in functions:
        return ""
    text = needed(operator.source, functions, operator.path)
    if "import tuner" in text or "from tuner" in text:
        return ""
    made = {}
    for name, spec in declared.tensors.items():
        shape, dtype = shape_of(spec, small.sizes), _TORCH[spec.dtype or small.dtype]
        if spec.dtype in INTEGER_DTYPES:
            made[name] = f"torch.zeros({shape}, dtype={dtype}, device=device)"
        elif name in declared.inputs:
            made[name] = f"torch.randn({shape}, device=device).to({dtype})"
        else:
            made[name] = f'torch.full({shape}, float("nan"), dtype={dtype}, device=device)'
    lines = {name: f"        {quoted(name)}: {value}," for name, value in made.items()}
    terms = small.sizes[operator.reduced_axis]
    product = 2 * FORMATS["tf32"].u if small.dtype == "fp32" else 0.0
    tolerances = []
    for name in declared.outputs:
        out = FORMATS[declared.tensors[name].dtype or small.dtype]
        tolerances.append((name, 2 * out.u, 4 * sum_terms(terms) * FORMATS["fp32"].u + product, 2 * out.eta + 1e-37))
    draw = f"    {declared.draw.__name__}(inputs, sizes, torch.Generator().manual_seed(0))\n" if declared.draw else ""
    return _BLOCK.format(
        functions=textwrap.indent(text, "    "),
        sizes=small.sizes,
        numbers=operator.scalars(small),
        inputs="\n".join(lines[name] for name in declared.inputs),
        outputs="\n".join(lines[name] for name in declared.outputs),
        draw=draw,
        reference=functions[0],
        first=quoted(next(iter(declared.outputs))),
        tolerances=tolerances,
        dtype=_TORCH[small.dtype],
        label=" ".join([declared.name, *(f"{name}={size}" for name, size in small.shape)]),
    )


def _shortened(operator: DeclaredOperator, problem: Problem) -> Problem:
    sizes = problem.sizes
    for name, size in operator.declared.parameters.items():
        if name != operator.reduced_axis and not size.fixed:
            sizes[name] = max(size.minimum, min(sizes[name], _MOST // size.multiple_of * size.multiple_of))
    try:
        return operator.problem(sizes, problem.dtype, problem.settings)
    except ProblemError:  # sizes that do not go together; the problem's own do
        return problem
