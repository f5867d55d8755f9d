"""The arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

OperatorName = Annotated[
    str | None,
    typer.Argument(metavar="OPERATOR", help="What is computed; see `tuner operators`. Of your own: FILE.py:NAME."),
]
NamedOperator = Annotated[
    str | None,
    typer.Option("--operator", metavar="NAME", help="The same as OPERATOR, as an option.", show_default=False),
]
Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="URL",
        help="Database: a path ending in .db, or an SQLAlchemy URL. Default: $TUNER_DB, else one in your data folder.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else there.")]
DevicePart = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="Of this device only: a name, or part of one.", show_default=False),
]
Shape = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=N,...", help="Sizes of the problem, such as rows=4096,cols=32768."),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype", metavar="DTYPE", help="bf16, fp16, fp32 or, of some operators, fp8 (e4m3).", show_default=False
    ),
]
Causal = Annotated[
    bool | None,
    typer.Option("--causal/--no-causal", help="Mask keys after the query (attention).", show_default=False),
]
Scale = Annotated[
    float | None,
    typer.Option(
        "--scale", metavar="X", help="Factor on the scores (attention). Default: 1/sqrt(head_dim).", show_default=False
    ),
]
Extra = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="Any option of the operator; repeat for more."),
]
OfOperator = Annotated[
    str | None,
    typer.Option(
        "--operator", metavar="NAME", help="Of this operator only; of your own: FILE.py:NAME.", show_default=False
    ),
]
SpacePath = Annotated[
    Path | None,
    typer.Option("--space", metavar="FILE", help="A search space of your own (YAML) in place of the shipped one."),
]
ConfigText = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="NAME=VALUE,...",
        help="A config, such as template=online,BLOCK_COLS=4096; the rest as in the plain config.",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target", metavar="NAME", help="GPU to compile for without having it: sm_90, a100, h200, rtx4090, mi300x..."
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        max=2**62,
        help="Decides the inputs, and the order of a search where there is one.",
    ),
]
