"""The end of a study: race, finals and the winner's record; without a GPU the best estimate."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from tuner.config import Config
from tuner.errors import StudyFailedError
from tuner.evaluating import GiveUpJob
from tuner.events import FinalistsChosen, Listener, Notice, Stage
from tuner.finals import FINAL_PROCESSES, Contender, Finals, Rounds, affordable, choose_racers
from tuner.finals import Outcome as FinalOutcome
from tuner.gpu_funnel import GpuFunnel
from tuner.gpu_lane import Lane
from tuner.machine import Machine
from tuner.space import BoundSpace
from tuner.steps import Steps, reply_in_steps
from tuner.store.records import TIE, WINNER, StudyRecord, WinnerRecord
from tuner.store.store import Store
from tuner.study_results import Result, Results
from tuner.tickets import TicketOffice
from tuner.trial import Measurement, Outcome, TrialRecord

_GIVE_UP_LIMIT_S = 20.0
# Estimates closer than this are called ties: a static model tells no smaller difference.
ESTIMATE_INDIFFERENCE = 0.01


@dataclass(frozen=True)
class StudyPlace:
    """What a run of a study works with. ``shares_gpu``: other studies go on with the same GPU processes."""

    store: Store
    study: StudyRecord
    bound: BoundSpace
    office: TicketOffice
    machine: Machine
    seed: int
    listener: Listener
    shares_gpu: bool = False

    def notice(self, text: str) -> None:
        """Tell what people should know."""
        self.listener(Notice(text))


class StudyEnd:
    """Chooses the winner among ``results``. ``on_stage`` is told where it is."""

    def __init__(self, place: StudyPlace, results: Results, on_stage: Callable[[Stage], None]) -> None:
        self._place, self._results, self._on_stage = place, results, on_stage
        self._problem, self._device = place.bound.problem, place.bound.device

    def measured(self, funnel: GpuFunnel, raced: Rounds, deadline: float) -> Steps[WinnerRecord]:
        """Race and finals, all on the first GPU of ``funnel``. ``raced``: rounds that were run there before.

        No rounds of the race begin after ``deadline`` (``time.monotonic()``).

        Raises ``StudyFailedError`` where no finalist could be measured again.
        """
        place, lane = self._place, funnel.lanes[0]
        finals = Finals(self._problem, self._device, place.seed, place.notice)
        excluded: set[str] = set()
        while True:
            contenders = [c for c in self._results.contenders(place.office) if c.key not in excluded]
            if not contenders:
                raise StudyFailedError(
                    f"{place.study.name}: no finalist could be measured again (each failed the check, or its process "
                    f"ended); `tuner show {place.study.name}` lists the reasons"
                )
            self._on_stage(Stage.RACE)
            workers = [place.machine.fresh_worker(f"finals-{i}", lane) for i in range(FINAL_PROCESSES)]
            racers = choose_racers(contenders)
            if funnel.fits_beside:
                yield from finals.set_up(workers, racers[0])
            finalists = yield from finals.race(lane.worker, racers, raced, deadline)
            finalists = self._affordable(finalists, deadline - time.monotonic())
            plain = [c for c in contenders if c.is_plain]
            anchor = min(plain or finalists, key=lambda c: c.screen_us)
            self._on_stage(Stage.FINALS)
            place.listener(FinalistsChosen(tuple(c.config.label for c in finalists)))
            yield from self._give_up(lane)
            outcome, wrong = yield from finals.finals(workers, finalists, anchor)
            lane.worker.busy_seconds += sum(w.busy_seconds for w in workers)
            self._store_wrong(wrong)
            if outcome is not None:
                for key, measurement in outcome.measurements.items():
                    place.store.record_measurements(self._results.by_key[key].trial_id, [measurement])
                return self._winner_record(outcome, anchor)
            excluded.update(c.key for c in (*finalists, anchor))

    def _affordable(self, finalists: list[Contender], left_s: float) -> list[Contender]:
        """Those for whom there is time, as long as the checks of this study's candidates took in the middle."""
        seconds = [r.record.seconds.get("check", 0.0) for r in self._results.by_key.values() if r.value_us is not None]
        chosen = affordable(finalists, median(seconds), left_s)
        if len(chosen) < len(finalists):
            self._place.notice(f"the time left is enough for {len(chosen)} of {len(finalists)} finalists")
        return chosen

    def _give_up(self, lane: Lane) -> Steps[None]:
        """The search's process gives up the card: what it keeps must not differ from one finalist to another."""
        if self._place.shares_gpu and lane.worker.process_id:
            yield from reply_in_steps(lane.worker, GiveUpJob(self._problem, self._place.seed), _GIVE_UP_LIMIT_S)
            lane.clear()
        else:
            lane.worker.kill()

    def _store_wrong(self, wrong: Mapping[str, str]) -> None:
        """A finalist that failed the check on new inputs is wrong, whatever it was before, and so are its twins."""
        place = self._place
        for key, reason in wrong.items():
            for result in self._results.of_program(self._results.by_key[key].program):
                record = TrialRecord(
                    config=result.config,
                    variant_hash=result.record.variant_hash,
                    outcome=Outcome.WRONG,
                    reason=f"in the final re-measurement: {reason}",
                    compile_report=result.record.compile_report,
                    check_report=result.record.check_report,
                    same_as="" if result.config.key == key else key,
                    seed=place.seed,
                )
                place.store.record_trial(place.study.id, record, place.office.variant(result.config))
                wrong_now = Result(result.trial_id, result.config, Outcome.WRONG, None, record)
                self._results.by_key[result.config.key] = wrong_now

    def _winner_record(self, outcome: FinalOutcome, anchor: Contender) -> WinnerRecord:
        winner = outcome.measurements[outcome.winner.key]
        plain = outcome.measurements.get(anchor.key)
        ratios = outcome.decision.ratios
        others = sorted((r for key, r in ratios.items() if key != outcome.decision.winner), key=lambda r: r.ratio)
        results = self._results.by_key
        return WinnerRecord(
            trial_id=results[outcome.winner.key].trial_id,
            kind=outcome.kind,
            verdict=outcome.verdict,
            median_us=winner.median_us,
            low_us=winner.low_us,
            high_us=winner.high_us,
            estimated=False,
            margin=others[0].ratio - 1.0 if others else None,
            interval=(others[0].low - 1.0, others[0].high - 1.0) if others else None,
            tie_set=tuple(outcome.decision.ties),
            plain_key=anchor.key if plain and anchor.is_plain else "",
            plain_us=plain.median_us if plain and anchor.is_plain else None,
            speedup=plain.median_us / winner.median_us if plain and anchor.is_plain else None,
            finalists=tuple(_finalist(key, m, results[key].config) for key, m in outcome.measurements.items()),
        )

    def estimated(self) -> WinnerRecord:
        """The best estimate; among those within the indifference of it the simplest config."""
        contenders = sorted(self._results.contenders(self._place.office), key=lambda c: (c.screen_us, c.weight))
        best_us = contenders[0].screen_us
        tied = [c for c in contenders if c.screen_us <= (1.0 + ESTIMATE_INDIFFERENCE) * best_us]
        winner = min(tied, key=lambda c: c.weight)
        plain = min((c for c in contenders if c.is_plain), key=lambda c: c.screen_us, default=None)
        verdict = f"estimated, not measured: {winner.config.label}"
        if len(tied) > 1:
            verdict += f" is the simplest of {len(tied)} whose estimates are within 1 %"
        return WinnerRecord(
            trial_id=self._results.by_key[winner.key].trial_id,
            kind=WINNER if len(tied) == 1 else TIE,
            verdict=verdict,
            median_us=winner.screen_us,
            low_us=winner.screen_us,
            high_us=winner.screen_us,
            estimated=True,
            tie_set=tuple(c.key for c in tied),
            plain_key=plain.key if plain else "",
            plain_us=plain.screen_us if plain else None,
            speedup=plain.screen_us / winner.screen_us if plain else None,
        )


def _finalist(key: str, measurement: Measurement, config: Config) -> dict[str, object]:
    return {
        "key": key,
        "label": config.label,
        "median_us": measurement.median_us,
        "low_us": measurement.low_us,
        "high_us": measurement.high_us,
    }
