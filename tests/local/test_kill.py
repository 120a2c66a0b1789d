"""`kill -9` of `trainmaster up`, and of `trainmaster run`: no object is lost, no process is doubled or forgotten.

Every process of these tests writes itself into a journal, and looks whether one that was there before still lives.
"""

import asyncio
import errno
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.local.cluster import AITJ, DIJOB, POLL, client_of, create, items_of, until, until_ended, until_running
from tests.local.conftest import Start, Up
from tests.local.program import Program, containers_of, job, role, script, serial, written
from tests.manifests.build import Manifest, container, coordinated, template
from trainmaster.core.ids import POD, Resource
from trainmaster.kube.client import KubeCluster
from trainmaster.local.node.process import POD_UID, pids
from trainmaster.local.state import holder_of

WORK = """
start() { { read -r line < "/proc/$1/stat"; } 2>/dev/null && line=${line##*) } && set -- $line && echo "${20}"; }
me="journal/$HOSTNAME"
echo "$$ $(start $$)" >> "$me"
while read -r pid time; do
  [ "$pid" = $$ ] || [ "$(start "$pid")" != "$time" ] || echo "$HOSTNAME: $pid and $$" >> doubles
done < "$me"
[ -p "end/$HOSTNAME" ] || mkfifo "end/$HOSTNAME"
read -r code < "end/$HOSTNAME"
exit "$code"
"""
"""Until somebody writes an exit code into end/NAME."""


class Crew:
    """The processes of the pods, as they see themselves."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.command = ["sh", str(folder / "work.sh")]
        (folder / "work.sh").write_text(WORK)
        for name in ("journal", "end"):
            (folder / name).mkdir()

    @property
    def lines(self) -> dict[str, int]:
        """How many processes ever filled a pod's place."""
        return {file.name: file.read_text().count("\n") for file in (self._folder / "journal").iterdir()}

    @property
    def doubles(self) -> str:
        file = self._folder / "doubles"
        return file.read_text() if file.exists() else ""

    async def end(self, pod: str, code: int) -> None:
        """Let the pod's process end, as soon as it listens."""
        while True:
            try:
                descriptor = os.open(self._folder / "end" / pod, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno not in (errno.ENXIO, errno.ENOENT):
                    raise
                await asyncio.sleep(POLL)
                continue
            os.write(descriptor, f"{code}\n".encode())
            os.close(descriptor)
            return


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(tmp_path)
    yield crew
    assert crew.doubles == ""


async def objects_of(cluster: KubeCluster, *resources: Resource) -> dict[tuple[str, str], tuple[str, Any]]:
    """uid and spec of all, by kind and name."""
    return {
        (resource.kind, item["metadata"]["name"]): (item["metadata"]["uid"], item["spec"])
        for resource in resources
        for item in await items_of(cluster, resource)
    }


# --- in the middle of 20 running jobs ---


class Case(NamedTuple):
    """A sort of job, and what becomes of it. ``meanwhile`` is the exit code while no cluster runs; None: it goes on."""

    name: str
    amount: int
    pods: tuple[str, ...]
    meanwhile: int | None
    verdict: str
    says: str = ""
    restarts: int = 0

    @property
    def jobs(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(self.amount)]

    @property
    def resource(self) -> Resource:
        return DIJOB if self.name.startswith("di") else AITJ

    def places(self, name: str) -> list[str]:
        return [f"{name}-{pod}" for pod in self.pods]

    def manifest(self, name: str, command: list[str]) -> Manifest:
        if self.resource is DIJOB:
            given = template(container(command=command), restartPolicy="OnFailure" if self.restarts else "Never")
            return coordinated(given, name)
        roles = Counter(pod.partition("-")[0] for pod in self.pods)
        return job(name, **{each: role(command, count) for each, count in roles.items()})


PAIR = ("trainer-0", "trainer-1")
CASES = [
    Case("stays", 5, PAIR, None, "Succeed"),
    Case("succeeds", 3, ("ps-0", *PAIR), 0, "Succeed"),
    Case("fails", 4, PAIR, 3, "Failed", says="exited with reason Error exitcode 3"),
    Case("di-stays", 3, ("coordinator",), None, "Succeeded"),
    Case("di-succeeds", 2, ("coordinator",), 0, "Succeeded"),
    Case("di-fails", 1, ("coordinator",), 3, "Failed", says="exitcode 3"),
    Case("di-restarts", 2, ("coordinator",), 3, "Succeeded", restarts=1),
]
JOBS = {name: case for case in CASES for name in case.jobs}
PLACES = {place: case for name, case in JOBS.items() for place in case.places(name)}


async def kill_two_starts(start: Start, state: Path) -> None:
    """Once as soon as it holds the folder, once when it has something to say: then its parts are at work."""
    first = start("up", "--state", str(state))
    await until(lambda: holder_of(state) == first.pid)
    first.kill()
    second = start("up", "--state", str(state))
    await until(lambda: second.errors() != "")
    second.kill()


async def test_after_kill_9_amid_20_jobs_nothing_is_lost_or_doubled_and_every_end_is_told(
    up: Up, start: Start, state: Path, crew: Crew
) -> None:
    assert len(JOBS) == 20
    program = up()
    async with client_of(state) as cluster:
        for name, case in JOBS.items():
            await create(cluster, case.manifest(name, crew.command))
        await until_running(cluster, len(PLACES))
        before = await objects_of(cluster, AITJ, DIJOB)
    program.kill()
    watchers = len(containers_of(state))
    ending = [(place, case.meanwhile) for place, case in PLACES.items() if case.meanwhile is not None]
    for place, code in ending:
        await crew.end(place, code)
    await until(lambda: len(containers_of(state)) == watchers - len(ending))
    assert crew.lines == dict.fromkeys(PLACES, 1)

    await kill_two_starts(start, state)
    up()
    async with client_of(state) as cluster:
        assert await objects_of(cluster, AITJ, DIJOB) == before
        for place, case in PLACES.items():
            if case.meanwhile is None or case.restarts:
                await crew.end(place, 0)
        ends = {name: await until_ended(cluster, case.resource, name) for name, case in JOBS.items()}
        pods = {item["metadata"]["name"]: item["status"] for item in await items_of(cluster, POD)}

    assert {name: end["verdict"] for name, end in ends.items()} == {name: case.verdict for name, case in JOBS.items()}
    assert {name: case.says in str(ends[name]["conditions"]) for name, case in JOBS.items()} == dict.fromkeys(
        JOBS, True
    )
    assert crew.lines == {place: 1 + case.restarts for place, case in PLACES.items()}
    for place, status in pods.items():
        [container] = status["containerStatuses"]
        assert container["restartCount"] == PLACES[place].restarts
        if PLACES[place].restarts:
            assert container["lastState"]["terminated"]["exitCode"] == 3


# --- while the jobs are being created ---


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_kill_9_while_jobs_are_created_loses_nothing_that_was_acknowledged(
    up: Up, state: Path, crew: Crew, seed: int
) -> None:
    """20 jobs come as fast as they can, and at two moments of it the cluster is killed."""
    choose = random.Random(seed)
    manifests = {name: case.manifest(name, crew.command) for name, case in JOBS.items()}
    acknowledged: set[str] = set()
    for moment in (*sorted(choose.sample(range(1, len(JOBS)), 2)), len(JOBS)):
        program = up()
        async with client_of(state) as cluster:
            there = {name for _, name in await objects_of(cluster, AITJ, DIJOB)}
            assert acknowledged <= there
            for name in sorted(manifests.keys() - there, key=lambda _: choose.random()):
                await create(cluster, manifests[name])
                acknowledged.add(name)
                if len(acknowledged) >= moment:
                    break
            if moment < len(JOBS):
                program.kill()
                continue
            await until_running(cluster, len(PLACES))
            assert {name for _, name in await objects_of(cluster, AITJ, DIJOB)} == manifests.keys()

    await until(lambda: crew.lines == dict.fromkeys(PLACES, 1))
    assert len(containers_of(state)) == len(PLACES)


# --- run ---


def processes_in(folder: Path) -> list[int]:
    """Everything that a container of a run with this folder for temporary files has started, whoever its parent is."""
    return [pid for pid in pids() if _is_marked(pid) and _home_of(pid) == str(folder)]


def _environ(pid: int) -> dict[str, str]:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(os.fsdecode(word).split("=", 1) for word in words if b"=" in word)


def _is_marked(pid: int) -> bool:
    return POD_UID in _environ(pid)


def _home_of(pid: int) -> str:
    return _environ(pid).get("HOME", "")


FAMILY = script("setsid sleep 600 & (sleep 600 &) ; trap '' HUP; echo ready; exec sleep 600")
"""Children that left their session, and one whose parent has ended."""


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        pytest.param((signal.SIGINT,), 130, id="ctrl-c"),
        pytest.param((signal.SIGINT, signal.SIGINT), 130, id="ctrl-c twice"),
        pytest.param((signal.SIGTERM,), 143, id="term"),
        pytest.param((signal.SIGHUP,), 129, id="hangup"),
    ],
)
def test_a_run_that_is_told_to_end_leaves_no_process(
    start: Start, tmp_path: Path, signals: tuple[signal.Signals, ...], code: int
) -> None:
    program = running_family(start, tmp_path)
    for number in signals:
        program.send(number)
    assert program.end()[0] == code

    assert processes_in(tmp_path) == []


async def test_a_run_that_is_killed_takes_its_processes_along(start: Start, tmp_path: Path) -> None:
    program = running_family(start, tmp_path)
    program.kill()
    async with asyncio.timeout(20):
        await until(lambda: not processes_in(tmp_path))


def running_family(start: Start, folder: Path) -> Program:
    program = start("run", written(folder, job(trainer=role(FAMILY, 2)), serial(FAMILY, "serial")))
    for _ in range(3):
        program.until(lambda line: line.endswith("ready\n"))
    assert len(processes_in(folder)) >= 9
    return program
