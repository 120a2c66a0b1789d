"""An AggregatorConfig as the examples of nervex-operator have it: with a status that nothing reads."""

from tests.local.apiserver.client import Client
from tests.manifests.build import agconfig

CONFIGS = "/apis/nervex.sensetime.com/v1alpha1/namespaces/{ns}/aggregatorconfigs"
COUNTS = {"total": 4, "active": 3, "idle": 1}
OF_EXAMPLES = {**agconfig("default"), "status": {"actors": COUNTS, "collectors": COUNTS, "learners": COUNTS}}


async def _stored(client: Client, namespace: str) -> object:
    """What the server stores of the example when it is as strict as kubectl asks it to be."""
    example = {**OF_EXAMPLES, "metadata": {"name": "aggregator-config"}}
    stored = await client.create(CONFIGS.format(ns=namespace) + "?fieldValidation=Strict", example)
    return {"spec": stored["spec"], "status": stored.get("status")}


async def test_a_config_with_a_status_is_accepted_without_it(api: Client) -> None:
    assert await _stored(api, "default") == {"spec": OF_EXAMPLES["spec"], "status": None}


async def test_a_real_api_server_stores_the_same(real: Client, namespace: str) -> None:
    assert await _stored(real, namespace) == {"spec": OF_EXAMPLES["spec"], "status": None}
