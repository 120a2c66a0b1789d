"""The results as a table of plain text, and a verdict on each budget."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from bench import diserver, local
from bench.diserver import DiServer
from bench.local import Local
from bench.machine import OTHERS
from bench.neighbour import Neighbour
from bench.phase import Compared, Created, Footprint, Lives
from bench.restart import Restart
from bench.work import PODS_PER_JOB

JOBS = 250
"""The budgets are meant for this many jobs of four pods, and the last of them for ten times as many."""
MANY = 10

FIRST_MX_JOBS = 100
"""MxJobs of six batch Jobs."""

RATIO = 1.3
RUNNING_SECONDS = 1.0
MEMORY = 80.0
MEMORY_OF_MANY = 150.0
STATUS_WRITES = 6
COLD_START = 1.5
MANY_PROCESSES = 20.0
IDLE_CORES = 0.02
IDLE_MEMORY = 120.0
POST_SECONDS = 0.05
GETS = 2000
RESTART_RATIO = 1.5
BESIDE_RATIO = 2.0
NEIGHBOUR_RATIO = 3.0

DISTURBING_CORES = 0.2


class Results(msgspec.Struct):
    """All that was measured; what was left out is empty."""

    jobs: int
    raw: list[Created] = []
    job_controller: list[Created] = []
    operator: list[Created] = []
    bare_jobs: list[float] = []
    lives: Lives | None = None
    footprint: Footprint | None = None
    local: Local | None = None
    diserver: DiServer | None = None
    restart: Restart | None = None
    mx_jobs: Compared | None = None
    mx_lives: Lives | None = None
    first_mx_jobs: Compared | None = None
    first_mx_lives: Lives | None = None
    task_jobs: Compared | None = None
    task_lives: Lives | None = None
    neighbour: Neighbour | None = None


class Row(NamedTuple):
    """One measurement, and what it is held against."""

    what: str
    objects: str = ""
    seconds: str = ""
    rate: str = ""
    ratio: str = ""
    budget: str = ""
    verdict: str = ""


_HEADER = Row("what", "objects", "seconds", "objects/s", "ratio to ceiling", "budget", "verdict")


class Budget(NamedTuple):
    """One promise of the design, and how it was kept."""

    says: str
    measured: str
    verdict: str


def render(results: Results) -> str:
    """The table, one line for each budget that this run says something about, and how to read it."""
    meant = (
        "" if results.jobs == JOBS else f" (meant for {JOBS} jobs of {PODS_PER_JOB} pods; this run had {results.jobs})"
    )
    return "\n".join(
        [
            *_aligned([_HEADER, *_rows(results)]),
            "",
            f"budgets{meant}",
            *_aligned(budgets(results)),
            "",
            *_notes(results),
        ]
    )


def _rows(results: Results) -> list[Row]:
    return [
        *_creation_rows(results),
        *_delay_rows("(d) job", results.lives),
        *_local_rows(results.local),
        *_restart_rows(results.restart),
        *_mx_rows("MXJobs", results.mx_jobs),
        *_delay_rows("(i) MXJob", results.mx_lives),
        *_mx_rows("MxJobs", results.first_mx_jobs),
        *_delay_rows("(i) MxJob", results.first_mx_lives),
        *_mx_rows("DIJobs with tasks", results.task_jobs),
        *_delay_rows("(i) DIJob with tasks", results.task_lives),
    ]


def budgets(results: Results) -> list[Budget]:
    return [
        *_speed(results),
        *_reports("", results.lives),
        *_memory("", results.lives),
        *_memory_of_many(results.footprint),
        *_local(results.local),
        *_diserver(results.diserver),
        *_restart(results.restart),
        *_mx("MXJobs", results.mx_jobs),
        *_reports("MXJobs: ", results.mx_lives),
        *_memory("MXJobs: ", results.mx_lives),
        *_mx("MxJobs", results.first_mx_jobs),
        *_reports("MxJobs: ", results.first_mx_lives),
        *_memory("MxJobs: ", results.first_mx_lives),
        *_mx("DIJobs with tasks", results.task_jobs),
        *_reports("DIJobs with tasks: ", results.task_lives),
        *_memory("DIJobs with tasks: ", results.task_lives),
        *_neighbour(results.neighbour),
    ]


def ratios(results: Results) -> list[float]:
    """Of the phases a and c."""
    return Compared(results.raw, results.operator, results.bare_jobs).ratios


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the values that this share of them does not exceed."""
    return ordered[math.ceil(share * len(ordered)) - 1]


def _verdict(is_kept: bool) -> str:
    return "ok" if is_kept else "OVER"


def _speed(results: Results) -> list[Budget]:
    found = []
    if each := ratios(results):
        ratio = statistics.median(each)
        found.append(Budget(f"all objects within {RATIO} × the ceiling", f"{ratio:.2f} ×", _verdict(ratio <= RATIO)))
    if results.operator and results.job_controller:
        ours, theirs = _median(results.operator).rate, _median(results.job_controller).rate
        says = "more objects a second than the Job controller"
        found.append(Budget(says, f"{ours:.0f}/s, not {theirs:.0f}/s", _verdict(ours > theirs)))
    return found


def _reports(whose: str, lives: Lives | None) -> list[Budget]:
    if lives is None:
        return []
    p99, most = percentile(lives.delays, 0.99), lives.status_writes[-1]
    says = f"{whose}Running at most {RUNNING_SECONDS:g} s after the job's last pod, p99"
    often = f"{whose}at most {STATUS_WRITES} status writes a job"
    return [
        Budget(says, f"{p99:.3f} s", _verdict(p99 <= RUNNING_SECONDS)),
        Budget(often, f"{most} writes", _verdict(most <= STATUS_WRITES)),
    ]


def _memory(whose: str, lives: Lives | None) -> list[Budget]:
    if lives is None:
        return []
    used = lives.memory
    says = f"{whose}memory with {lives.pods} pods at most {MEMORY:g} MB"
    return [Budget(says, f"{used.rss} MB (peak {used.peak})", _verdict(used.rss <= MEMORY))]


def _memory_of_many(footprint: Footprint | None) -> list[Budget]:
    if footprint is None:
        return []
    grown, restarted = footprint.grown, footprint.restarted
    says = f"memory with {footprint.pods} pods at most {MEMORY_OF_MANY:g} MB"
    measured = f"{grown.rss} MB (peak {grown.peak}), restarted {restarted.rss} MB (peak {restarted.peak})"
    return [Budget(says, measured, _verdict(max(grown.rss, restarted.rss) <= MEMORY_OF_MANY))]


def _creation_rows(results: Results) -> list[Row]:
    rows = [
        _creation_row("(a) raw loader, the ceiling", results.raw, results),
        _creation_row("(b) Job controller, pods only", results.job_controller, results),
        _creation_row("(c) trainmaster operator", results.operator, results),
    ]
    if rows[-1] and (each := ratios(results)):
        ratio = statistics.median(each)
        rows[-1] = rows[-1]._replace(ratio=f"{ratio:.2f}", budget=f"≤ {RATIO}", verdict=_verdict(ratio <= RATIO))
    return [row for row in rows if row]


def _creation_row(what: str, runs: Sequence[Created], results: Results) -> Row | None:
    if not runs:
        return None
    run = _median(runs)
    ratio = f"{_median(results.raw).rate / run.rate:.2f}" if results.raw else ""
    return Row(what, str(run.objects), f"{run.seconds:.2f}", f"{run.rate:.0f}", ratio)


def _delay_rows(whose: str, lives: Lives | None) -> list[Row]:
    if lives is None:
        return []
    what = f"{whose} Running after its last pod"
    p50, p99, last = percentile(lives.delays, 0.5), percentile(lives.delays, 0.99), lives.delays[-1]
    jobs = str(len(lives.delays))
    return [
        Row(f"{what}, p50", jobs, f"{p50:.3f}"),
        Row(
            f"{what}, p99",
            jobs,
            f"{p99:.3f}",
            budget=f"≤ {RUNNING_SECONDS:g} s",
            verdict=_verdict(p99 <= RUNNING_SECONDS),
        ),
        Row(f"{what}, max", jobs, f"{last:.3f}"),
    ]


def _local(found: Local | None) -> list[Budget]:
    if found is None:
        return []
    budgets = []
    if found.run:
        seconds = statistics.median(found.run)
        says = f"trainmaster run: {local.FEW} processes at most {COLD_START:g} s after the command"
        budgets.append(Budget(says, f"{seconds:.2f} s", _verdict(seconds <= COLD_START)))
    if found.many is not None:
        says = f"{local.MANY} processes within {MANY_PROCESSES:g} s"
        budgets.append(Budget(says, f"{found.many:.1f} s", _verdict(found.many <= MANY_PROCESSES)))
    if found.idle_cores is not None and found.idle_memory is not None:
        cores, rss = found.idle_cores, found.idle_memory.rss
        says = f"an idle local cluster: at most {IDLE_CORES:.0%} of a core and {IDLE_MEMORY:g} MB"
        kept = cores <= IDLE_CORES and rss <= IDLE_MEMORY
        budgets.append(Budget(says, f"{cores:.1%}, {rss} MB", _verdict(kept)))
    return budgets


def _diserver(found: DiServer | None) -> list[Budget]:
    if found is None:
        return []
    return [
        *_requests("POST for 2 + 2 replicas", found.posts, "", found.gets_per_core),
        *_requests("POST of a job with tasks", found.task_posts, " of jobs with tasks", found.task_gets_per_core),
    ]


def _requests(post: str, posts: list[float], whose: str, rate: float) -> list[Budget]:
    p99 = percentile(posts, 0.99)
    return [
        Budget(
            f"di-server: {post}, p99 at most {POST_SECONDS * 1000:g} ms",
            f"{p99 * 1000:.0f} ms",
            _verdict(p99 <= POST_SECONDS),
        ),
        Budget(
            f"di-server: {GETS} GETs a second of one core with {diserver.REPLICAS} replicas{whose}",
            f"{rate:.0f}/s",
            _verdict(rate >= GETS),
        ),
    ]


def _local_rows(found: Local | None) -> list[Row]:
    if found is None:
        return []
    few = str(local.FEW)
    return [
        Row("(f) shell script starts processes", few, f"{statistics.median(found.script):.2f}"),
        Row("(f) trainmaster run starts the same", few, f"{statistics.median(found.run):.2f}"),
    ]


def _restart(found: Restart | None) -> list[Budget]:
    if found is None:
        return []
    idle, beside = percentile(found.idle, 0.99), percentile(found.beside, 0.99)
    return [
        Budget(
            f"restart of {found.pods} pods within {RESTART_RATIO} × the ceiling",
            f"{found.ratio:.2f} ×",
            _verdict(found.ratio <= RESTART_RATIO),
        ),
        Budget(
            f"other jobs get their pods meanwhile within {BESIDE_RATIO:g} × their usual time, p99",
            f"{beside / idle:.2f} × ({beside * 1000:.0f} ms, not {idle * 1000:.0f} ms)",
            _verdict(beside <= BESIDE_RATIO * idle),
        ),
    ]


def _restart_rows(found: Restart | None) -> list[Row]:
    if found is None:
        return []
    pods, ceiling, budget = str(found.pods), statistics.mean(found.raw), f"≤ {RESTART_RATIO}"
    ratio, verdict = f"{found.ratio:.2f}", _verdict(found.ratio <= RESTART_RATIO)
    return [
        Row("(h) raw loader deletes and creates pods", pods, f"{ceiling:.2f}"),
        Row("(h) trainmaster operator restarts a job", pods, f"{found.operator:.2f}", "", ratio, budget, verdict),
    ]


def _restart_notes(found: Restart | None) -> list[str]:
    if found is None:
        return []
    times = ((found.idle, "alone"), (found.beside_raw, "beside the loader's restart"), (found.beside, "beside ours"))
    return [
        "(h) ms until another job has its pod, p50 and p99: "
        + "; ".join(
            f"{what} {percentile(each, 0.5) * 1000:.0f} and {percentile(each, 0.99) * 1000:.0f} ({len(each)} jobs)"
            for each, what in times
        )
    ]


def _neighbour(found: Neighbour | None) -> list[Budget]:
    if found is None:
        return []
    return [
        Budget(
            f"a job has its pods within {NEIGHBOUR_RATIO:g} × its usual time beside {found.jobs} of another namespace",
            f"{found.ratio:.2f} ×",
            _verdict(found.ratio <= NEIGHBOUR_RATIO),
        )
    ]


def _neighbour_notes(found: Neighbour | None) -> list[str]:
    if found is None:
        return []
    times = ((found.alone, "alone"), (found.beside_raw, "beside the loader"), (found.beside, "beside ours"))
    return [
        f"(j) s until a job of another namespace {what}, median and maximum: "
        + "; ".join(f"{where} {statistics.median(s):.2f} and {max(s):.2f} ({len(s)} jobs)" for s, where in seconds)
        for what, seconds in (
            ("has its pods", [([took.pods for took in each], where) for each, where in times]),
            ("runs", [([took.running for took in each], where) for each, where in times]),
        )
    ]


def _mx(kind: str, found: Compared | None) -> list[Budget]:
    if found is None:
        return []
    ratio = statistics.median(found.ratios)
    says = f"{kind}: all objects within {RATIO} × the ceiling"
    return [Budget(says, f"{ratio:.2f} ×", _verdict(ratio <= RATIO))]


def _mx_rows(kind: str, found: Compared | None) -> list[Row]:
    if found is None:
        return []
    ceiling, ours, ratio = _median(found.raw), _median(found.operator), statistics.median(found.ratios)
    return [
        Row(
            f"(i) raw loader, the same as for {kind}",
            str(ceiling.objects),
            f"{ceiling.seconds:.2f}",
            f"{ceiling.rate:.0f}",
        ),
        Row(
            f"(i) trainmaster operator, {kind}",
            str(ours.objects),
            f"{ours.seconds:.2f}",
            f"{ours.rate:.0f}",
            f"{ratio:.2f}",
            f"≤ {RATIO}",
            _verdict(ratio <= RATIO),
        ),
    ]


def _median(runs: Sequence[Created]) -> Created:
    return sorted(runs, key=lambda run: run.seconds)[(len(runs) - 1) // 2]


def _notes(results: Results) -> list[str]:
    notes = []
    if each := ratios(results):
        listed = ", ".join(f"{ratio:.2f}" for ratio in each)
        notes.append("(a) and (c) took turns, (a) first and last; a ratio is one (c) to the mean of the (a) before and")
        notes.append(f"after it, and the median counts: {listed}")
        notes += _share_of_jobs("(c)", results.bare_jobs, results.raw)
    for what, runs in (("a", results.raw), ("b", results.job_controller), ("c", results.operator)):
        if runs:
            notes += _run_notes(what, runs)
    compared = {"MXJobs": results.mx_jobs, "MxJobs": results.first_mx_jobs, "DIJobs with tasks": results.task_jobs}
    for kind, found in compared.items():
        notes += _turn_notes(kind, found)
    notes += _life_notes("(d)", results.lives)
    notes += _life_notes("(i) MXJobs:", results.mx_lives)
    notes += _life_notes("(i) MxJobs:", results.first_mx_lives)
    notes += _life_notes("(i) DIJobs with tasks:", results.task_lives)
    notes += _restart_notes(results.restart) + _neighbour_notes(results.neighbour)
    return notes + _disturbances(results)


def _turn_notes(kind: str, found: Compared | None) -> list[str]:
    if found is None:
        return []
    each = ", ".join(f"{ratio:.2f}" for ratio in found.ratios)
    ours, raw = _run_notes(f"i, {kind}", found.operator), _run_notes(f"i, raw for {kind}", found.raw)
    share = _share_of_jobs(f"(i) {kind}: this", found.bare_jobs, found.raw)
    return [f"(i) {kind} and the raw loader took turns as well: {each}", *share, *raw, *ours]


def _life_notes(whose: str, lives: Lives | None) -> list[str]:
    if lives is None:
        return []
    lived = "; ".join(f"{count} × {phases}" for phases, count in lives.phases.items())
    writes = statistics.mean(lives.status_writes)
    return [f"{whose} phases: {lived}; {writes:.1f} status writes a job on average"]


def _share_of_jobs(whose: str, bare_jobs: Sequence[float], raw: Sequence[Created]) -> list[str]:
    """The operator has more to create than the loader: the jobs themselves. It says how much of the ratio that is."""
    if not bare_jobs:
        return []
    alone = statistics.median(bare_jobs)
    share = alone / _median(raw).seconds
    return [f"{whose} includes the creation of the jobs, which alone takes {alone:.2f} s: {share:.2f} × the ceiling"]


def _run_notes(what: str, runs: Sequence[Created]) -> list[str]:
    """Seconds vary with what else the machine does; the CPU time of an object hardly does."""
    seconds = ", ".join(f"{run.seconds:.2f}" for run in runs)
    run = _median(runs)
    used = {name: 1000 * total / run.objects for name, total in run.cpu.items() if name != OTHERS}
    listed = ", ".join(f"{name} {each:.2f}" for name, each in used.items())
    return [f"({what}) seconds of each run: {seconds}; CPU ms an object: {listed}, together {sum(used.values()):.2f}"]


def _disturbances(results: Results) -> list[str]:
    compared = [found for found in (results.mx_jobs, results.first_mx_jobs, results.task_jobs) if found]
    runs = [*results.raw, *results.job_controller, *results.operator]
    runs += [run for found in compared for run in (*found.raw, *found.operator)]
    most = max((run.cpu[OTHERS] / run.seconds for run in runs), default=0.0)
    if most < DISTURBING_CORES:
        return []
    return [f"NOISY: other programs kept up to {most:.1f} cores busy meanwhile; measure again on a quiet machine"]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Words to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_cell(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cell(cell: str, width: int) -> str:
    return cell.rjust(width) if cell[:1].isdigit() and cell.replace(".", "").isdigit() else cell.ljust(width)
