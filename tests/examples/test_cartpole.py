"""The programs of examples/cartpole: they learn to balance, whoever is killed, and take everybody who comes."""

import http.client
import io
import json
import re
import signal
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.cartpole import coordinator, crew, learner, merge, policy, ppo, wire
from examples.cartpole.pole import Poles, mean_return
from examples.rl import web
from examples.rl.diserver import DiServer
from tests.examples.conftest import Listen
from tests.examples.standin import StandIn, commands_in

MANIFEST = "examples/dijob-cartpole.yaml"
AGGREGATOR = (["python3", "-m", "examples.cartpole.aggregator"], dict[str, str]())


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[StandIn]:
    roles = commands_in(MANIFEST)
    roles |= {"aggregator": AGGREGATOR, "ddp-learner": roles["learner"]}
    with StandIn("cartpole", roles, tmp_path).serving() as stand_in:
        yield stand_in


def post(address: str, path: str, body: dict[str, Any]) -> None:
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("POST", path, json.dumps(body))
    assert connection.getresponse().status == 200
    connection.close()


def returns_in(lines: list[str]) -> list[float]:
    return [float(found) for line in lines for found in re.findall(r"^step \d+  return ([\d.]+)  collectors", line)]


# --- the job ---


@pytest.mark.timeout(150)
def test_the_job_learns_to_balance_though_its_workers_are_killed_and_their_number_changes(stand_in: StandIn) -> None:
    coordinator = stand_in.coordinator(COLLECTORS="1", LEARNERS="1", SECONDS_PER_STEP="0")
    coordinator.until(r"^step 2  return .*  collectors 1  learners 1$")
    (learner,) = stand_in.of("learner")
    learner.process.kill()
    coordinator.until(rf"learner {learner.url} is (lost|removed)")  # by its silence, or by what the server says
    coordinator.until(r"^step \d+  return .*  collectors 1  learners 1$")  # by another one
    (collector,) = stand_in.of("collector")
    collector.process.kill()
    coordinator.until(rf"collector {collector.url} is (lost|removed)")
    coordinator.until(r"^step \d+  return .*  collectors 1  learners 1$")

    (learner,) = stand_in.of("learner")
    learner.process.send_signal(signal.SIGSTOP)  # nobody learns until all four are there
    asked = {"namespace": "default", "coordinator": coordinator.name, "collectors": {"replicas": 3}}
    post(stand_in.address, "/v1alpha1/replicas", asked)
    newest = stand_in.of("collector")[-3:]
    for _ in newest:
        coordinator.until(r"collector cartpole-collector-\d+\.default:\d+ is here")
    learner.process.send_signal(signal.SIGCONT)
    coordinator.until(r"^step \d+  return .*  collectors 4  learners 1$")
    code = coordinator.ended()

    assert code == 0, coordinator.lines
    assert returns_in(coordinator.lines)[0] < 100
    assert returns_in(coordinator.lines)[-1] >= 475
    assert re.match(r"solved: the pole stood for (4[789]\d|500)\.\d moments in the mean of 20", coordinator.lines[-1])
    assert len({pod.url for pod in newest}) == 3


@pytest.mark.timeout(90)
def test_several_learners_share_the_work_directly_or_behind_an_aggregator(stand_in: StandIn) -> None:
    for _ in range(2):
        stand_in.start("ddp-learner")
    stand_in.start("aggregator")

    coordinator = stand_in.coordinator(COLLECTORS="1", LEARNERS="1", SECONDS_PER_STEP="0")
    coordinator.until(r"^step \d+  return [\d.]+  collectors 1  learners 2$")  # the aggregator is one of them
    coordinator.process.terminate()

    assert coordinator.ended() == 1


@pytest.mark.timeout(60)
def test_a_replica_that_comes_back_at_the_same_address_is_taken_again(stand_in: StandIn) -> None:
    collector = stand_in.start("collector")
    known = crew.Crew("collector")
    name, port = collector.name, int(collector.url.rpartition(":")[2])
    address = f"127.0.0.1:{port}"
    meet_until_here(known, address)
    collector.process.kill()
    collector.process.wait()

    body = wire.pack(vector=policy.initial(1), seed=1, step=1, rank=0)
    assert known.ask("/rollout", {address: body}) == {}
    with pytest.raises(TimeoutError, match="no collector did in time"):
        known.present(time.monotonic())
    stand_in.pods.pop(name)
    stand_in.start("collector", name=name, port=port)
    meet_until_here(known, address)

    (answer,) = known.ask("/rollout", {address: body}).values()
    assert wire.trajectory_of(wire.unpack(answer)).rewards.shape == (128, 4)


def meet_until_here(known: crew.Crew, address: str) -> None:
    while True:  # the test's time limit is the limit
        known.meet([address])
        try:
            known.present(time.monotonic() + 0.1)
        except TimeoutError:
            continue
        return


def test_who_is_not_listed_any_more_is_forgotten_and_who_is_silent_for_long_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = crew.Crew("learner")
    monkeypatch.setattr(crew, "LOST", -1.0)
    known.meet(["127.0.0.1:1", "127.0.0.1:2"])

    assert known.lost() == ["127.0.0.1:1", "127.0.0.1:2"]
    known.meet(["127.0.0.1:2"])
    assert known.lost() == ["127.0.0.1:2"]
    assert "learner 127.0.0.1:1 is removed" in capsys.readouterr().out


def test_a_learner_that_answers_rubbish_is_left_out_and_the_others_do_its_work(
    listen: Listen, capsys: pytest.CaptureFixture[str]
) -> None:
    ping = {("GET", "/ping"): lambda _: b""}
    good = listen({**ping, ("POST", "/improve"): learner.learn})
    bad = [
        listen({**ping, ("POST", "/improve"): lambda _: b"rubbish"}),
        listen({**ping, ("POST", "/improve"): lambda _: wire.pack(vector=1)}),
    ]
    known = crew.Crew("learner")
    known.meet([good, *bad])
    seen, begun = Poles(4, seed=1).rollout(policy.initial(1), 32, [1]), ppo.untaught(1)

    learnt, number = merge.improve_by(known, begun, seen, (1, 1), patience=30)

    assert number == 1
    assert not np.array_equal(learnt.vector, begun.vector)
    assert known.present(time.monotonic() + 1) == [good]
    told = capsys.readouterr().out
    assert all(f"learner {one} is lost" in told for one in bad)


def test_nobody_waits_for_ever_for_a_learner_that_only_refuses(listen: Listen) -> None:
    known = crew.Crew("learner")
    known.meet([listen({("GET", "/ping"): lambda _: b""})])
    with pytest.raises(TimeoutError, match="no learner did in time what it was asked for"):
        merge.improve_by(known, ppo.untaught(1), seen_by_one(), (1, 1), patience=0.5)


def test_a_job_that_does_not_learn_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(coordinator, "STEPS", 0)
    environ = dict.fromkeys(("KUBERNETES_SERVER_URL", "KUBERNETES_POD_NAMESPACE", "KUBERNETES_POD_NAME"), "unused")

    assert coordinator.train(coordinator.Job(DiServer(environ)), pace=0) == 1
    assert capsys.readouterr().out == "not solved in 0 steps\n"


def test_a_learner_listens_on_a_port_for_each_of_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    ports: list[int] = []
    monkeypatch.setattr(learner, "serve", lambda role, routes: ports.extend(routes))
    for name, value in (("LEARNER_PORT", "22271"), ("START_RANK", "4"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)

    learner.main()

    assert ports == [22275, 22276]


# --- learning ---


def test_a_few_updates_make_the_pole_stand_longer() -> None:
    poles, learnt = Poles(8, seed=1), ppo.untaught(1)
    before = mean_return(learnt.vector, 20, seed=1)

    for step in range(8):
        learnt = ppo.improve(learnt, poles.rollout(learnt.vector, 128, [1, step]), [step])

    assert before < 40
    assert mean_return(learnt.vector, 20, seed=1) > 3 * before


def test_the_same_seeds_give_the_same_numbers() -> None:
    first, second = (Poles(4, seed=3).rollout(policy.initial(1), 64, [1, 2]) for _ in range(2))
    one, two = (ppo.improve(ppo.untaught(1), seen, [5]) for seen in (first, second))

    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert np.array_equal(one.vector, two.vector)


def test_the_gradient_is_the_slope_of_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppo, "LONGEST_STEP", 1e9)
    random = np.random.default_rng(7)
    vector = policy.initial(3).astype(float) + random.normal(0, 0.05, policy.SIZE)
    observations, actions = random.normal(size=(6, 4)), np.array([0, 1, 0, 1, 1, 0], np.int8)
    logs = policy.log_chances(vector, observations)[np.arange(6), actions]
    drift = np.array([0.05, -0.05, 0.6, 0.6, -0.6, -0.6])  # inside the clip, and on both sides of it
    batch = ppo.Samples(observations, actions, logs - drift, np.array([1.0, -1, 2, -2, 3, -3]), random.normal(size=6))

    def loss(at: policy.Vector) -> float:
        ratio = np.exp(policy.log_chances(at, observations)[np.arange(6), actions] - batch.log_chances)
        gain = np.minimum(ratio * batch.advantages, ratio.clip(0.8, 1.2) * batch.advantages)
        return float(np.mean(0.5 * (policy.values(at, observations) - batch.returns) ** 2 - gain))

    slope = ppo.gradient(vector, batch)

    for place in random.choice(policy.SIZE, 60, replace=False):
        nudge = np.zeros(policy.SIZE)
        nudge[place] = 1e-6
        assert slope[place] == pytest.approx((loss(vector + nudge) - loss(vector - nudge)) / 2e-6, abs=1e-5)


def test_advantages_stop_at_a_fall_and_look_beyond_a_cut() -> None:
    moments = np.zeros((3, 2), np.float32)
    ends = np.array([[False, False], [True, True], [False, False]])
    nobody = np.zeros_like(ends)
    seen = ppo.Trajectory(
        np.zeros((4, 2, 4), np.float32),
        np.zeros((3, 2), np.int8),
        moments,
        moments + 1,
        fallen=ends & [True, False],
        cut=ends & [False, True],
        valid=~nobody,
    )
    vector = np.zeros(policy.SIZE, np.float32)
    vector[-1] = 10.0  # the critic expects 10, always

    first, second = ppo.samples_of(vector, seen).advantages.reshape(3, 2).T

    expected = 1 + 0.98 * 10 - 10
    assert first == pytest.approx([expected + 0.98 * 0.9 * -9, -9, expected])
    assert second == pytest.approx([expected + 0.98 * 0.9 * expected, expected, expected])


def test_what_several_learnt_is_merged_by_weight() -> None:
    ones, zeros = np.ones(policy.SIZE, np.float32), np.zeros(policy.SIZE, np.float32)

    merged = ppo.merged([ppo.Learnt(ones, ones, ones, 3), ppo.Learnt(zeros, zeros, zeros, 5)], [1, 3])

    assert merged.minibatches == 5
    assert np.allclose([merged.vector, merged.mean, merged.square], 0.25)
    assert merged.vector.dtype == np.float32


def test_a_moment_in_which_a_cart_begins_anew_is_not_learnt_from() -> None:
    seen = Poles(8, seed=2).rollout(policy.initial(1), 200, [1])
    ended = (seen.fallen | seen.cut)[:-1]

    assert ended.any()
    assert np.array_equal(~seen.valid[1:], ended)
    assert len(ppo.samples_of(policy.initial(1), seen).actions) == seen.valid.sum()


# --- what travels ---


def seen_by_one() -> ppo.Trajectory:
    return Poles(2, seed=1).rollout(policy.initial(1), 16, [1])


def test_what_is_learnt_and_seen_travels_unchanged() -> None:
    seen, learnt = seen_by_one(), ppo.untaught(1)

    arrays = wire.unpack(wire.pack(**learnt._asdict(), **seen._asdict()))

    assert all(np.array_equal(a, b) for a, b in zip(wire.trajectory_of(arrays), seen, strict=True))
    assert wire.pack(**wire.learnt_of(arrays)._asdict()) == wire.pack(**learnt._asdict())


@pytest.mark.parametrize(
    ("change", "match"),
    [
        pytest.param({"actions": np.full((16, 2), 2, np.int8)}, "nothing to learn", id="third-action"),
        pytest.param({"actions": np.zeros((15, 2), np.int8)}, "actions of 16 moments", id="too-short"),
        pytest.param({"rewards": np.zeros(16, np.float32)}, "moments and carts", id="flat"),
        pytest.param({"rewards": np.full((16, 2), np.nan, np.float32)}, "rewards of 16 moments", id="not-a-number"),
        pytest.param({"fallen": np.zeros((16, 2))}, "fallen of 16 moments", id="wrong-type"),
        pytest.param({"valid": np.zeros((16, 2), np.bool_)}, "nothing to learn", id="nothing"),
    ],
)
def test_a_trajectory_that_does_not_fit_is_refused(change: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        wire.trajectory_of({**seen_by_one()._asdict(), **change})


def test_trajectories_of_different_lengths_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="16 moments instead of 128"):
        wire.trajectory_of(seen_by_one()._asdict(), 128)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"vector": np.zeros(3, np.float32)}, id="other-network"),
        pytest.param({"mean": np.full(policy.SIZE, np.inf, np.float32)}, id="infinite"),
        pytest.param({"square": np.full(policy.SIZE, -1, np.float32)}, id="negative-square"),
        pytest.param({"minibatches": np.array(-1)}, id="negative-count"),
        pytest.param({"minibatches": np.array([1, 2])}, id="several-counts"),
    ],
)
def test_a_state_that_no_learner_makes_is_refused(change: dict[str, Any]) -> None:
    given = {**ppo.untaught(1)._asdict(), "minibatches": np.array(1), **change}
    with pytest.raises(ValueError):
        wire.learnt_of(given)


def test_code_bombs_and_rubbish_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled, bomb = io.BytesIO(), io.BytesIO()
    np.savez(pickled, vector=np.array([object()], dtype=object))
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("vector.npy", b"\0" * (web.LIMIT + 1))

    for data, match in ((pickled, "pickle"), (bomb, "more than"), (io.BytesIO(b"rubbish"), "no arrays")):
        with pytest.raises(ValueError, match=match):
            wire.unpack(data.getvalue())
