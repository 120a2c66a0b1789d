"""The made-up kind of ``kind.py`` is held to what every kind is held to: the laws, and the matrix of situations."""

from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.build import Json
from tests.kinds.plain import kind as plain
from tests.laws.machine import hold, machine_of
from tests.laws.maker import Maker
from tests.laws.memory import Object
from tests.matrix.kinds import (
    AFTER_NODE_FAULTS,
    MLKUBE,
    NEVER,
    Options,
    Row,
    is_true,
    template_of,
    used_of,
    with_options,
)
from tests.matrix.outcome import VICTIM, Case, GoesOn, Outcome
from tests.matrix.table import POD_AND_NODE, TABLE, Situation
from trainmaster.core.ids import Key
from trainmaster.kinds.base import Settings
from trainmaster.kinds.crd import crd

LIMIT = 150


def test_a_kind_takes_at_most_150_lines() -> None:
    assert plain.__file__
    assert len(Path(plain.__file__).read_text().splitlines()) <= LIMIT


# --- the laws ---


class PlainMaker(Maker):
    kind = plain.PlainJobKind
    keeps_services = True

    def specs(self) -> st.SearchStrategy[Object]:
        main = {"name": plain.MAIN, "image": "x", "ports": [{"containerPort": 80}]}
        run_policy = st.fixed_dictionaries(
            {},
            optional={
                "cleanPodPolicy": st.sampled_from(["All", "Running", "None"]),
                "backoffLimit": st.integers(0, 3),
                "activeDeadlineSeconds": st.sampled_from([5, 700]),
                "ttlSecondsAfterFinished": st.sampled_from([0, 30]),
                "suspend": st.sampled_from([False, False, True]),
            },
        )
        return st.fixed_dictionaries(
            {"template": st.just({"spec": {"containers": [main]}}), "runPolicy": run_policy},
            optional={
                "replicas": st.integers(1, 3),
                "restartPolicy": st.sampled_from(["Never", "OnFailure", "OnNodeFail"]),
            },
        )

    def is_stopped(self, job: Object) -> bool:
        return bool(job["spec"]["runPolicy"].get("suspend"))

    def children(self, key: Key, spec: Object) -> set[str]:
        return {f"{key.name}-{plain.ROLE}-{index}" for index in range(spec.get("replicas", 1))}

    def policy(self, spec: Object) -> str:
        return str(spec["runPolicy"].get("cleanPodPolicy", "None"))


class GangMaker(PlainMaker):
    settings = Settings(gang_scheduler="volcano")


@pytest.mark.parametrize("maker", [PlainMaker(), GangMaker()], ids=["alone", "gang"])
def test_the_laws_hold_in_every_history(maker: Maker) -> None:
    hold(machine_of(maker), few=20)


# --- the matrix ---


def _job(options: Options) -> Json:
    policy = {NEVER: "Never", AFTER_NODE_FAULTS: "OnNodeFail"}.get(options.policy, "OnFailure")
    spec = {
        "replicas": 3,
        "template": template_of(plain.MAIN, options),
        "restartPolicy": policy,
        "runPolicy": {"cleanPodPolicy": "Running"},
    }
    resource, metadata = plain.RESOURCE, {"name": "job", "namespace": "ml", "uid": "uid-of-job"}
    job = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}
    return with_options(job, options)


ROW = Row(
    name="plainjob",
    contract="PlainJob",
    build=_job,
    size=3,
    victim="job-worker-1",
    main=plain.MAIN,
    restarts_all=True,
    result=lambda job: next((end for end in ("Failed", "Succeeded") if is_true(job, end)), ""),
    is_running=lambda job: is_true(job, "Running"),
    counted=used_of,
    suspend=("runPolicy", "suspend"),
    deadline=("runPolicy", "activeDeadlineSeconds"),
    ttl=("runPolicy", "ttlSecondsAfterFinished"),
    template=("template",),
    clean=("runPolicy", "cleanPodPolicy"),
    replicas=("replicas",),
    ended={"phase": "Succeeded", "conditions": [{"type": "Succeeded", "status": "True"}]},
    kind=plain.PlainJobKind(Settings()),
)


# A deleted pod of this kind is created again, and nothing is counted.
DIFFERS: dict[str, Outcome] = {"pod-terminating-on-a-dead-kubelet": GoesOn(VICTIM, event=POD_AND_NODE)}


@pytest.mark.parametrize(
    ("situation", "outcome"),
    [
        pytest.param(situation, DIFFERS.get(situation.name, situation.outcome), id=situation.name)
        for situation in TABLE
        # No other operator has run such jobs, and they have no batch Jobs.
        if not situation.found and situation.rows != MLKUBE
    ],
)
def test_the_job_ends_as_the_table_says(situation: Situation, outcome: Outcome) -> None:
    with ROW.world(situation.manifest(ROW)) as world:
        case = Case(ROW, world)
        if not situation.at_creation:
            case.start()
        situation.act(case)
        if situation.at_creation:
            world.create()

        outcome.check(case)


# --- the definition ---


def test_its_definition_is_generated_from_its_types() -> None:
    version = crd(plain.DEFINITION)["spec"]["versions"][0]

    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["required"] == ["template"]
    assert spec["properties"]["restartPolicy"]["enum"] == ["Never", "OnFailure", "OnNodeFail"]
    assert [column["name"] for column in version["additionalPrinterColumns"]] == [
        "Phase",
        "Age",
        "Ready",
        "Restarts",
        "Message",
    ]
