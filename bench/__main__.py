"""`python -m bench`: measures the operator on the test bed and holds it against its budgets.

The phases: (a) a raw loader creates what the operator would, (b) Kubernetes' own Job controller, (c) our operator;
(d) whole lives of AITrainingJobs; (e) memory with ten times as many; (f) local mode; (g) di-server; (h) the restart of
a big job; (i) MXJobs, MxJobs of six batch Jobs each, and DIJobs with tasks: their creation as in (a) and (c), their
lives as in (d); (j) a job of another namespace while 200 are created.

The table goes to stdout, all numbers to bench/result.json. Timings are not assertions: the exit code is 0 also when
a budget is exceeded, and 1 only when something could not be measured.
"""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench import diserver, local, machine, neighbour, phase, restart, table, work
from bench.bed import Bed
from bench.load import LoadFailed
from bench.observer import Stuck
from bench.progress import Progress
from bench.table import Results
from testbed.plane import NotBuilt
from testbed.process import StartFailed

PHASES = "abcdefghij"
RESULT = Path(__file__).with_name("result.json")


def main() -> int:
    options = _options()
    progress = Progress()
    facts = machine.facts()
    results = Results(options.jobs)
    try:
        if set(options.only) - {"f"}:
            with Bed(progress) as bed:
                _measure(bed, results, options.only, options.rounds)
        if "f" in options.only:
            progress.phase = "f"
            results.local = local.measure(progress, options.rounds)
    except (LoadFailed, NotBuilt, StartFailed, Stuck, local.TooSlow, phase.Miscounted) as error:
        print(f"bench: {error}", file=sys.stderr)
        if progress.phase:
            print(f"bench: this ended phase {progress.phase}; the table has what was measured before", file=sys.stderr)
            print(table.render(results))
        return 1
    except KeyboardInterrupt:
        print("bench: stopped; everything that it started has ended", file=sys.stderr)
        return 130
    print(table.render(results))
    _write(results, facts)
    progress(f"all numbers are in {RESULT}")
    return 0


def _measure(bed: Bed, results: Results, only: str, rounds: int) -> None:
    phase.warm_up(bed)
    jobs, progress = results.jobs, bed.progress
    if "a" in only:
        progress.phase = "a"
        results.raw.append(phase.raw(bed, jobs))
    for _ in range(rounds if "c" in only else 0):
        progress.phase = "c"
        results.operator.append(phase.operator(bed, jobs))
        results.bare_jobs.append(phase.bare_jobs(bed, jobs))
        if "a" in only:
            progress.phase = "a"
            results.raw.append(phase.raw(bed, jobs))
    if "b" in only:
        progress.phase = "b"
        results.job_controller.append(phase.job_controller(bed, jobs))
    if "d" in only:
        progress.phase = "d"
        results.lives = phase.lives(bed, jobs)
    _measure_servers_and_neighbours(bed, results, only)
    if "i" in only:
        progress.phase = "i"
        _measure_other_kinds(bed, results, rounds)
    if "e" in only:  # the last one: to delete its 10,000 pods would take longer than to measure
        progress.phase = "e"
        results.footprint = phase.footprint(bed, table.MANY * jobs)


def _measure_servers_and_neighbours(bed: Bed, results: Results, only: str) -> None:
    progress = bed.progress
    if "g" in only:
        progress.phase = "g"
        results.diserver = diserver.measure(bed)
    if "h" in only:
        progress.phase = "h"
        results.restart = restart.measure(bed)
    if "j" in only:
        progress.phase = "j"
        results.neighbour = neighbour.measure(bed)


def _measure_other_kinds(bed: Bed, results: Results, rounds: int) -> None:
    jobs = results.jobs
    first_jobs = max(1, jobs * table.FIRST_MX_JOBS // table.JOBS)
    results.mx_jobs = phase.compared(bed, jobs, work.MX, rounds)
    results.first_mx_jobs = phase.compared(bed, first_jobs, work.FIRST_MX, rounds)
    results.mx_lives = phase.lives(bed, jobs, work.MX)
    results.first_mx_lives = phase.lives(bed, first_jobs, work.FIRST_MX)
    results.task_jobs = phase.compared(bed, jobs, work.TASKS, rounds)
    results.task_lives = phase.lives(bed, jobs, work.TASKS)


def _write(results: Results, facts: dict[str, object]) -> None:
    judged = [budget._asdict() for budget in table.budgets(results)]
    written = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": facts,
        "budgets": judged,
        "ratios": table.ratios(results),
        "results": results,
    }
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(written), indent=1) + b"\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", type=_phases, default=PHASES, help="phases to run, for example a,c (default: all)")
    parser.add_argument(
        "--jobs", type=_number, default=table.JOBS, help="jobs of four pods; phase e has ten times as many"
    )
    parser.add_argument(
        "--rounds", type=_number, default=3, help="runs of phases c and i, with the raw loader before and after each"
    )
    return parser.parse_args()


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, 1 or more")
    return int(text)


def _phases(text: str) -> str:
    chosen = text.replace(",", "")
    if not chosen or not set(chosen) <= set(PHASES):
        raise argparse.ArgumentTypeError(f"{text!r}: choose among {','.join(PHASES)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
