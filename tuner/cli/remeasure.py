"""``tuner remeasure``: stored winners checked and measured again on today's stack, without searching."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli import options
from tuner.cli.output import answer_only, note, plain, print_json, say

if TYPE_CHECKING:
    from tuner.remeasurement import Remeasurement


def remeasure(
    of_operator: options.OfOperator = None,
    shape: Annotated[
        list[str] | None, typer.Option("--shape", metavar="NAME=N..M", help="Sizes, or ranges: cols=1024..8192.")
    ] = None,
    dtype: options.Dtype = None,
    runners_up: Annotated[
        int, typer.Option("--runners-up", metavar="N", min=0, max=20, help="So many of each winner's finalists too.")
    ] = 5,
    space: options.SpacePath = None,
    estimated: Annotated[
        bool, typer.Option("--estimated", help="Estimate again what was estimated; needs no GPU.")
    ] = False,
    target: options.Target = None,
    seed: options.Seed = 0,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Checks and measures the stored winner of every problem on this device again, with its runners-up and the plain
    config: interleaved, on today's software, without searching. Says for each: keep, switch, or tune again.

    The results are stored, for `tuner regressions`. Needs a GPU. Exits with 1 where something is to be tuned again.

    \b
    Example:
      tuner remeasure
      tuner remeasure --operator softmax --shape cols=1024..8192 --runners-up 2
    """
    from tuner.events import Event, Notice
    from tuner.remeasurement import Advice

    def listen(event: Event) -> None:
        if isinstance(event, Notice):
            note(event.text)

    with answer_only(json):
        from tuner import api

        results = api.remeasure(
            operator=of_operator,
            shape=",".join(shape or ()),
            dtype=dtype,
            space=space,
            runners_up=runners_up,
            estimated=estimated,
            target=target,
            seed=seed,
            db=db,
            on_event=listen,
            on_result=None if json else _print,
        )
    if json:
        print_json([remeasurement_json(result) for result in results])
    else:
        counts = {advice: sum(r.advice is advice for r in results) for advice in Advice}
        say(f"{len(results)} winners: " + ", ".join(f"{n} {advice}" for advice, n in counts.items() if n))
    if any(result.advice is Advice.TUNE_AGAIN for result in results):
        raise typer.Exit(1)


def remeasurement_json(result: Remeasurement) -> dict[str, Any]:
    """The JSON of a batch."""
    data: dict[str, Any] = plain(result)
    return {"estimated": result.estimated, **data}


def _print(result: Remeasurement) -> None:
    from tuner.cli.tables import print_table
    from tuner.remeasurement import Advice
    from tuner.wording import interval_text, time_text

    to = f" to {result.to.label}" if result.advice is Advice.SWITCH and result.to else ""
    say(f"{result.advice}{to}: {result.problem.label} on {result.device}{_gain(result)}")
    say(f"  {result.reason}")
    say(f"  stored: {time_text(result.stored_us, result.estimated)} on {result.stored_stack}; now: {result.stack}")
    print_table(
        "",
        ("was", "now", "time", "95 % interval", "over the fastest", "config"),
        [
            (
                e.role,
                f"{e.outcome or 'left out'}{': ' + e.reason if e.reason and e.median_us is None else ''}",
                time_text(e.median_us, result.estimated and e.median_us is not None),
                interval_text(e.low_us, e.high_us),
                f"{e.ratio.ratio:.3f}" if e.ratio else "",
                e.config.label + (" (its source changed)" if e.source_changed else ""),
            )
            for e in result.entries
        ],
        right=("time", "over the fastest"),
    )


def _gain(result: Remeasurement) -> str:
    if result.gain is None:
        return ""
    span = (
        ""
        if result.gain_low is None or result.gain_high is None
        else (f" ({100 * result.gain_low:.1f}..{100 * result.gain_high:.1f} %)")
    )
    return f", which the stored winner is slower than by {100 * result.gain:.1f} %{span}"
