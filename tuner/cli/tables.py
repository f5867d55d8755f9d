"""Tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tuner.cli.output import out
from tuner.terminal import harmless

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

MOST_CHARACTERS = 4000
"""So much of a cell is printed."""


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()
) -> None:
    """A table on stdout; the columns named in ``right`` are aligned there. Nothing is printed without rows."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [[_text(cell) for cell in row] for row in rows]
    if not cells:
        return
    table = Table(
        title=Text(harmless(title)) if title else None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    _show(table)


def _text(cell: object) -> Text:
    """A cell, fit for a terminal; what would fill a screen is cut (``--json`` has all of it)."""
    from rich.text import Text

    text = str(cell)
    return Text(harmless(text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} ..."))


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Names and values in two columns; values of None or nothing are left out."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        if value is not None and str(value):
            grid.add_row(Text(name, style="dim"), _text(value))
    _show(grid)


def _show(table: Table) -> None:
    """Prints it; where stdout is no terminal, without the blanks that fill its lines up."""
    console = out()
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    console.file.write("\n".join(line.rstrip() for line in captured.get().split("\n")))
