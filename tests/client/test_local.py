"""The Python API against a local cluster in this process."""

import doctest
import itertools
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.local.conftest import Start, Up
from tests.local.program import containers_of, job, role, script, written
from trainmaster import (
    AsyncClient,
    Client,
    Job,
    JobFailed,
    JobNotFound,
    Refused,
    TimedOut,
    TrainmasterError,
)
from trainmaster.client import async_client, sync_client
from trainmaster.client import job as described

SECONDS = 60.0
SLEEPS = script("echo ready; exec sleep 600")


def test_a_job_is_submitted_followed_and_waited_for(client: Client) -> None:
    command = script('echo "rank $RANK of $WORLD_SIZE with $LR"')
    submitted = client.submit(Job("mnist", replicas=2, command=command, framework="torch", env={"LR": "0.1"}))
    lines = [str(line) for line in submitted.logs(follow=True)]
    status = submitted.wait(timeout=SECONDS)

    assert sorted(lines) == ["worker-0 | rank 0 of 2 with 0.1", "worker-1 | rank 1 of 2 with 0.1"]
    assert (status.phase, status.outcome, status.succeeded) == ("Succeed", "succeeded", True)
    assert [replica.lines for replica in status.replicas] == [("rank 0 of 2 with 0.1",), ("rank 1 of 2 with 0.1",)]
    assert (submitted.kind, submitted.namespace, submitted.name) == ("aitrainingjob", "default", "mnist")


def test_the_logs_of_a_job_without_pods_are_refused_unless_they_are_followed(client: Client) -> None:
    idle = client.submit(job("idle", spec={"suspend": True}, worker=role(["true"])))
    with pytest.raises(Refused, match="aitrainingjob/idle has no pod that has started"):
        list(idle.logs())
    with pytest.raises(Refused, match="follow waits for new lines, and previous has none"):
        list(idle.logs(follow=True, previous=True))
    idle.resume()

    assert list(idle.logs(follow=True)) == []


def test_a_job_that_fails_raises_its_story(client: Client) -> None:
    submitted = client.submit(Job("crash", command=script("echo boom; exit 3")))
    with pytest.raises(JobFailed) as caught:
        submitted.wait(timeout=SECONDS)
    unchecked = submitted.wait(timeout=SECONDS, check=False)

    assert "worker-0 (pod crash-worker-0, node local) exited with code 3" in caught.value.story
    assert "exited with code 3: boom\n" in str(caught.value)
    assert caught.value.status.outcome == unchecked.outcome == "failed"
    when = r"failed \d+s ago"
    why, story = (re.sub(when, "failed", text.splitlines()[0]) for text in (submitted.why(), caught.value.story))
    assert why == story


def test_a_wait_that_times_out_leaves_the_job_running(client: Client, user: Path) -> None:
    submitted = client.submit(Job("long", command=SLEEPS))
    first = next(submitted.logs(follow=True))
    with pytest.raises(TimedOut, match=r"aitrainingjob/long has not ended within 0\.1 s"):
        submitted.wait(timeout=0.1)

    assert str(first) == "worker-0 | ready"
    assert submitted.status().phase == "Running"
    assert containers_of(user)


def test_a_job_is_scaled_suspended_resumed_and_deleted(client: Client, user: Path) -> None:
    submitted = client.submit(Job("change", command=SLEEPS))
    submitted.scale(2)
    first = itertools.islice(submitted.logs(follow=True), 2)
    assert {line.replica for line in first} == {"worker-0", "worker-1"}
    submitted.suspend()
    until(lambda: not containers_of(user))
    assert submitted.status().phase == "Suspended"
    submitted.resume()
    until(lambda: len(containers_of(user)) == 2)
    assert [each.name for each in client.jobs()] == ["change"]
    assert client.job("aitj/change").name == "change"
    with pytest.raises(Refused, match="has no role chief; it has worker"):
        submitted.scale(3, role="chief")
    submitted.delete()
    submitted.delete()
    until(lambda: not containers_of(user))
    with pytest.raises(JobNotFound, match="was deleted"):
        submitted.wait(timeout=SECONDS)
    with pytest.raises(JobNotFound, match="there is no job change in the local cluster"):
        client.job("change")


def test_a_job_that_is_deleted_is_not_taken_for_another_one_of_its_name(client: Client) -> None:
    first = client.submit(Job("gone", command=SLEEPS))
    first.delete()
    client.submit(Job("gone", command=["true"]))

    with pytest.raises(JobNotFound, match="was deleted, and another job has its name now"):
        first.wait(timeout=SECONDS)
    with pytest.raises(JobNotFound, match="was deleted, and another job has its name now"):
        first.scale(2)


def test_a_job_that_is_deleted_at_its_end_has_a_result(client: Client) -> None:
    brief = client.submit(job("brief", spec={"ttlSecondsAfterFinished": 0}, worker=role(["true"])))
    status = brief.wait(timeout=SECONDS)
    until(lambda: not client.jobs())

    assert status.succeeded
    with pytest.raises(JobNotFound, match="was deleted"):
        brief.wait(timeout=SECONDS)


def test_a_manifest_is_a_dict_or_a_file_with_several_documents(client: Client, user: Path) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "given"}, "data": {"word": "hello"}}
    first, second = (job(name, worker=role(["true"])) for name in ("first", "second"))
    manifests = written(user, first, second, config)
    third = client.submit(job("third", worker=role(["true"])))
    listed = client.submit(Path(manifests))

    assert [each.name for each in (third, *listed)] == ["third", "first", "second"]
    assert all(each.wait(timeout=SECONDS).succeeded for each in (third, *listed))


def test_what_is_wrong_with_a_manifest_is_said_at_once(client: Client, user: Path) -> None:
    wrong = job("wrong", worker=role(["true"], count=-1, restartPolicy="Sometimes"))
    with pytest.raises(Refused) as caught:
        client.submit(wrong)
    assert "spec.replicaSpecs.worker.replicas" in str(caught.value)
    assert "spec.replicaSpecs.worker.restartPolicy" in str(caught.value)
    with pytest.raises(Refused, match=r"aitrainingjob/odd has no field spec\.sepc; remove it or correct its spelling"):
        client.submit(job("odd", spec={"sepc": 1}, worker=role(["true"])))
    with pytest.raises(Refused, match=r"missing\.yaml: cannot be read"):
        client.submit(user / "missing.yaml")
    with pytest.raises(Refused, match="configmap/x is not a job"):
        client.submit({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    assert client.jobs() == []


def test_warnings_of_the_api_server_are_warnings_of_python(client: Client) -> None:
    with pytest.warns(UserWarning, match=r"the manifest: aitrainingjob/odd: spec\.frameworkType") as caught:
        odd = client.submit(job("odd", spec={"frameworkType": "caffe"}, worker=role(["true"])))

    assert odd.name == "odd"
    assert caught[0].filename == __file__


def test_text_is_not_taken_for_a_path(client: Client) -> None:
    for text in ("kind: AITrainingJob\nmetadata: {}\n", "kind: AITrainingJob", '{"kind": 1}' + 999 * " ", "-", ""):
        with pytest.raises(Refused, match="this is text and not a path"):
            client.submit(text)


def test_a_name_has_a_suffix_only_on_request(client: Client) -> None:
    plain = Job("same", command=["true"])
    names = {client.submit(plain).name, client.submit(plain, unique=True).name, client.submit(plain, unique=True).name}
    with pytest.raises(Refused, match="aitrainingjob/same exists in namespace default of the local cluster"):
        client.submit(plain)

    assert len(names) == 3
    assert min(names) == "same"
    assert all(name.startswith("same") for name in names)


def test_no_line_is_lost_when_they_are_read_slowly(client: Client) -> None:
    many = client.submit(Job("many", command=script("seq 1 5000")))
    lines: list[str] = []
    for line in many.logs(follow=True):
        if not lines:  # the program has ended before the second line is read
            many.wait(timeout=SECONDS)
        lines.append(line.text)

    assert lines == [str(number) for number in range(1, 5001)]
    assert [line.text for line in many.logs(tail=2)] == ["4999", "5000"]


def test_a_program_runs_in_the_current_folder(client: Client, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (user / "work").mkdir()
    monkeypatch.chdir(user / "work")
    here = client.submit(Job("here", command=["pwd"]))
    there = client.submit(Job("there", command=["pwd"], workdir="/"))

    assert [line.text for each in (here, there) for line in each.logs(follow=True)] == [str(user / "work"), "/"]


async def test_it_works_where_an_event_loop_is_running(client: Client) -> None:
    assert client.submit(Job("nested", command=["true"])).wait(timeout=SECONDS).succeeded


async def test_the_async_client_does_the_same(user: Path) -> None:
    async with AsyncClient() as client:
        submitted = await client.submit(Job("hello", command=["echo", "hello"]))
        lines = [line.text async for line in submitted.logs(follow=True)]
        status = await submitted.wait(timeout=SECONDS)
        jobs = await client.jobs()
        await jobs.refresh()
        bad = await client.submit(Job("bad", command=["false"]))
        with pytest.raises(JobFailed, match="exited with code 1"):
            await bad.wait(timeout=SECONDS)
        async for _ in (await client.submit(Job("long", command=SLEEPS))).logs(follow=True):
            break

    assert (lines, status.succeeded) == (["hello"], True)
    assert "<td" in jobs.html()
    assert ">hello</td>" in jobs.html()
    assert left_in(user) == []


def test_nothing_is_left_after_an_error(user: Path) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012  the client is what is tested
        with Client() as client:
            submitted = client.submit(Job("long", command=SLEEPS))
            next(submitted.logs(follow=True))
            assert containers_of(user)
            raise ZeroDivisionError

    assert left_in(user) == []
    with pytest.raises(TrainmasterError, match="this client is closed; make a new one"):
        submitted.status()
    assert submitted._repr_html_() == "<p>&lt;aitrainingjob/long in namespace default&gt;</p>"


def test_a_table_shows_the_state_and_escapes_the_output(client: Client) -> None:
    hostile = client.submit(Job("hostile", command=script("echo '<script>alert(1)</script>'; exit 1")))
    hostile.wait(timeout=SECONDS, check=False)

    for html in (hostile._repr_html_(), client.jobs()._repr_html_()):
        assert ">&lt;script&gt;alert(1)&lt;/script&gt;</td>" in html
        assert "<script" not in html
        assert ">Failed</td>" in html


def test_objects_of_a_state_folder_are_kept(user: Path) -> None:
    with Client(state=user / "lab") as client:
        client.submit(Job("kept", command=["true"])).wait(timeout=SECONDS)
    with Client(state=user / "lab") as client:
        again = client.job("kept").status()

    assert again.succeeded


def test_a_running_local_cluster_is_used(up: Up, start: Start, state: Path) -> None:
    up()
    with Client(state=state) as client:
        assert client.submit(Job("shared", command=["true"])).wait(timeout=SECONDS).succeeded
    code, out, _ = start("list", "--state", str(state), "--format", "json").end()

    assert (code, [row["name"] for row in json.loads(out)]) == (0, ["shared"])


def test_the_examples_in_docstrings_print_what_is_written(user: Path) -> None:
    for module in (async_client, sync_client, described):
        failed, tried = doctest.testmod(module)
        assert (failed, tried > 0) == (0, True)


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def until(is_so: Callable[[], bool]) -> None:
    """Looks again and again: processes of pods end without a signal. The test's limit ends a wait in vain."""
    while not is_so():
        time.sleep(0.05)
