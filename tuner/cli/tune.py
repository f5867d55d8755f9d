"""``tuner tune``: searches, checks, times, and stores a winner."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli import EXIT_INTERRUPTED, options
from tuner.cli.budget import read_gpus, read_seconds, read_trials
from tuner.cli.output import answer_only, err, note, plain, print_json, say
from tuner.cli.problem_arguments import read_problem, the_operator
from tuner.errors import StudyFailedError, UsageError
from tuner.events import Event, Progress, TrialFinished
from tuner.problem import Problem
from tuner.search import DEFAULT_SAMPLER, SAMPLERS, check_sampler
from tuner.wording import duration_text, time_text, tried_text

if TYPE_CHECKING:
    from tuner.results import TuneResult
    from tuner.session import Session


def tune(
    operator: options.OperatorName = None,
    named: options.NamedOperator = None,
    shape: options.Shape = None,
    dtype: options.Dtype = None,
    causal: options.Causal = None,
    scale: options.Scale = None,
    option: options.Extra = None,
    problems: Annotated[
        Path | None, typer.Option("--problems", metavar="FILE", help="Tune every problem of a YAML file.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", metavar="N", help="Try at most N configs a problem.", show_default=False)
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", metavar="TIME", help="Search a problem for at most 90, 90s, 5m or 1h.", show_default=False
        ),
    ] = None,
    total_time: Annotated[
        str | None,
        typer.Option(
            "--total-time",
            metavar="TIME",
            help="With --problems: all of them share this time; it goes where most is expected.",
            show_default=False,
        ),
    ] = None,
    sampler: Annotated[
        str, typer.Option("--sampler", metavar="NAME", help=f"One of {', '.join(SAMPLERS)}.")
    ] = DEFAULT_SAMPLER,
    seed: options.Seed = 0,
    early_stop: Annotated[
        bool, typer.Option("--early-stop/--no-early-stop", help="End once the model sees nothing better left.")
    ] = True,
    space: options.SpacePath = None,
    target: options.Target = None,
    gpu: Annotated[
        bool | None,
        typer.Option(
            "--gpu/--no-gpu",
            help="Insist on a GPU, or estimate without one. Default: a GPU where there is one.",
            show_default=False,
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            "--gpus", metavar="N,...", help="Measure on these GPUs of this host, such as 0,1.", show_default=False
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", metavar="N", min=1, help="Processes that compile. Default: one a core.", show_default=False
        ),
    ] = None,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Finds the fastest config that is right for a problem, and stores it. The same command again goes on from there.

    \b
    Example:
      tuner tune softmax --shape rows=4096,cols=32768 --dtype bf16
      tuner tune attention_fwd --shape batch=4,heads=32,kv_heads=8,q_len=4096,kv_len=4096,head_dim=128 \\
          --dtype bf16 --causal --time 60
      tuner tune --problems problems.yaml --trials 200
      tuner tune --problems problems.yaml --total-time 10m --gpus 0,1
    """
    check_sampler(sampler)
    arguments: dict[str, Any] = {
        "space": space,
        "trials": read_trials(trials),
        "time_s": read_seconds(time),
        "sampler": sampler,
        "seed": seed,
        "early_stop": early_stop,
        "db": db,
        "target": target,
        "gpu": gpu,
        "workers": workers,
    }
    if gpus is not None:
        arguments["gpus"] = read_gpus(gpus)
    calls = None
    if problems is not None:
        if operator or named or shape or dtype or option or causal is not None or scale is not None:
            raise UsageError("--problems says what to tune; leave out the operator, --shape, --dtype and options")
        from tuner.problems_file import load_problems

        requests = load_problems(problems)
        wanted = [request.problem for request in requests]
        calls = [request.count for request in requests] if any(request.count > 1 for request in requests) else None
    elif operator is None and named is None:
        raise UsageError("what is to be tuned? Give an operator with --shape and --dtype, or --problems FILE")
    else:
        wanted = [read_problem(the_operator(operator, named), shape, dtype, causal, scale, option)]

    if total_time is not None:
        if problems is None or time is not None:
            raise UsageError("--total-time is for all of --problems together, in place of --time")
        arguments["total_s"] = read_seconds(total_time, "--total-time")

    run = _Run()
    with answer_only(json):
        run.tune_all(wanted, arguments, calls)
    if json:
        print_json(run.answers if problems is not None else run.answers[0])
    else:
        for result in run.results:
            print_result(result)
    if run.exit_code:
        raise typer.Exit(run.exit_code)


@dataclass
class _Run:
    """One call of the command: the results so far, and how it is going to exit."""

    results: list[TuneResult] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int = 0
    _best: tuple[str, float | None, bool] = ("", None, False)

    def tune_all(self, problems: list[Problem], arguments: dict[str, Any], calls: list[int] | None) -> None:
        """Tune them. One that no config survives does not stop the others; Ctrl-C does."""
        from tuner.session import Session

        machine = {
            name: arguments.pop(name) for name in ("db", "target", "gpu", "workers", "gpus") if name in arguments
        }
        with Session(**machine) as session:
            if len(problems) == 1 and "total_s" not in arguments:
                self._tune_one(session, problems[0], arguments)
            else:
                self._tune_many(session, problems, arguments, calls)

    def _tune_one(self, session: Session, problem: Problem, arguments: dict[str, Any]) -> None:
        from tuner.progress import make_display

        try:
            with make_display(err()) as display:

                def listen(event: Event) -> None:
                    self._remember(event)
                    display(event)

                self._take(problem, session.tune(problem, **arguments, on_event=listen))
        except StudyFailedError as error:
            self._take(problem, error)
        except KeyboardInterrupt:
            self._interrupted(problem)

    def _tune_many(
        self, session: Session, problems: list[Problem], arguments: dict[str, Any], calls: list[int] | None
    ) -> None:
        from tuner.progress_many import make_many_display

        with make_many_display(err()) as display:
            outcomes = session.tune_many(problems, calls=calls, **arguments, on_event=display)
        for problem, outcome in zip(problems, outcomes, strict=True):
            if outcome is not None:
                self._take(problem, outcome)
        if any(outcome is None for outcome in outcomes):
            self.exit_code = EXIT_INTERRUPTED

    def _take(self, problem: Problem, outcome: TuneResult | StudyFailedError) -> None:
        if isinstance(outcome, StudyFailedError):
            note(f"error: {outcome}")
            self.answers.append({"problem": plain(problem), "error": str(outcome)})
            self.exit_code = self.exit_code or outcome.exit_code
            return
        self.results.append(outcome)
        self.answers.append(answer(outcome))
        if outcome.interrupted:
            self.exit_code = EXIT_INTERRUPTED

    def _remember(self, event: Event) -> None:
        if isinstance(event, Progress) and event.best_us is not None:
            self._best = (event.best_label, event.best_us, event.estimated)
        elif isinstance(event, TrialFinished) and event.best_us is not None:
            self._best = (event.best_label, event.best_us, self._best[2])

    def _interrupted(self, problem: Problem) -> None:
        label, us, estimated = self._best
        best = f"best so far {time_text(us, estimated)} {label}" if us is not None else "nothing was timed yet"
        note(f"{problem.label}: {best}; run the same command to go on")
        self.answers.append(
            {
                "problem": plain(problem),
                "interrupted": True,
                "estimated": estimated,
                "best": None if us is None else {"label": label, "us": us},
            }
        )
        self.exit_code = EXIT_INTERRUPTED


def answer(result: TuneResult) -> dict[str, Any]:
    """The JSON of a result."""
    return {"estimated": result.estimated, **plain(vars(result))}


def print_result(result: TuneResult) -> None:
    """The winner (or the best so far), and what it took."""
    from tuner.cli.tables import print_facts
    from tuner.cli.winner_view import winner_facts

    study = result.study
    if result.winner is not None:
        facts = winner_facts(result.winner)
    else:
        best = f"{time_text(study.best_us, result.estimated)} {study.best_label}" if study.best_us else "none"
        facts = [("problem", result.problem.label), ("best so far", best), ("study", study.name)]
    busy = f", GPU busy {study.gpu_busy_s / study.wall_s:.0%}" if study.gpu_busy_s and study.wall_s else ""
    facts += [
        ("trials", f"{study.trials}: {tried_text(study.outcomes, study.reused, study.estimated)}"),
        ("took", f"{duration_text(study.wall_s)}{busy}"),
    ]
    if result.chance_of_better is not None:
        chance = f"{result.chance_of_better:.1%}"
        facts.append(("left to find", f"a config that is 1 % faster or more: a chance of {chance}, says the model"))
    print_facts(facts)
    if result.interrupted:
        note("interrupted; run the same command to go on")
    say("")
