"""Quantities: one form for each amount, the same as in a real kube-apiserver."""

from decimal import Decimal

import pytest

from tests.local.apiserver.client import Client
from trainmaster.local.apiserver.objects.quantity import BadQuantity, canonical, number

AMOUNTS = (
    *("0", "1", "0.5", ".5", "1000", "1000m", "1500m", "1500", "100m", "0.1m", "1n", "0.1n", "1u"),
    *("1k", "1000k", "1024k", "2000M", "1G", "1.5G", "1E", "1e3", "12e6", "1e-3", "0e3"),
    *("1Ki", "1024Ki", "1000Ki", "0.5Ki", "0.5Mi", "1.5Gi", "0.1Gi", "1Ti", "1Ei", "1023Ki", "0Ki"),
    *(1, 0, 1024, 1.5, 0.001, 1000000),
)


async def test_amounts_are_stored_as_by_a_real_api_server(real: Client) -> None:
    volumes = [{"name": f"v{index}", "emptyDir": {"sizeLimit": amount}} for index, amount in enumerate(AMOUNTS)]
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}

    pod = await real.create("/api/v1/namespaces/default/pods?dryRun=All", {"metadata": {"name": "x"}, "spec": spec})

    stored = [volume["emptyDir"]["sizeLimit"] for volume in pod["spec"]["volumes"]]
    assert [(amount, canonical(amount)) for amount in AMOUNTS] == list(zip(AMOUNTS, stored, strict=True))


@pytest.mark.parametrize("amount", AMOUNTS)
def test_the_one_form_is_a_fixed_point(amount: str | float) -> None:
    assert canonical(canonical(amount)) == canonical(amount)


@pytest.mark.parametrize(
    "text", ["", " ", "a", "1x", "1 Gi", "1gi", "1e", "1e99", "--1", "1.2.3", "0x1", "1Kii", None, True, [], {}]
)
def test_what_is_no_amount_is_refused(text: object) -> None:
    with pytest.raises(BadQuantity, match="quantities must match"):
        canonical(text)


@pytest.mark.parametrize(("text", "amount"), [("500m", "0.5"), ("1Ki", "1024"), ("2", "2"), ("1e3", "1000")])
def test_an_amount_is_a_number(text: str, amount: str) -> None:
    assert number(text) == Decimal(amount)
