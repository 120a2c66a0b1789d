"""DI_NODES and DI_RANK, as DI-engine's own parser reads them. Our v2alpha1 pods must keep to what these tests find."""

import pytest

from tests.contract.k8s_parser import parsed

NODES = "job-learner-0.di-job,job-collector-0.di-job,job-collector-1.di-job"


@pytest.mark.parametrize(
    ("rank", "address", "attached"),
    [
        (0, "job-learner-0.di-job", ""),
        (1, "job-collector-0.di-job", "tcp://job-learner-0.di-job:50515"),
        (2, "job-collector-1.di-job", "tcp://job-learner-0.di-job:50515,tcp://job-collector-0.di-job:50515"),
    ],
)
def test_a_node_listens_at_its_rank_and_dials_all_lower_ranks(rank: int, address: str, attached: str) -> None:
    found = parsed({"DI_NODES": NODES, "DI_RANK": str(rank)}, topology="mesh", parallel_workers=1)

    assert (found["address"], found["node_ids"], found["ports"]) == (address, rank, 50515)
    assert found["attach_to"] == attached


def test_in_a_star_all_nodes_dial_rank_0() -> None:
    found = parsed({"DI_NODES": NODES, "DI_RANK": "2"}, topology="star", parallel_workers=2)

    assert found["attach_to"] == "tcp://job-learner-0.di-job:50515,tcp://job-learner-0.di-job:50516"
    assert found["node_ids"] == 4


def test_a_rank_beyond_the_nodes_ends_ditask() -> None:
    with pytest.raises(IndexError):
        parsed({"DI_NODES": NODES, "DI_RANK": "3"}, topology="mesh", parallel_workers=1)
