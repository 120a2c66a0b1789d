"""trainmaster.kube.budget"""

from trainmaster.kube.budget import RetryBudget


def test_a_full_budget_pays_for_as_many_retries_as_it_holds() -> None:
    budget = RetryBudget(capacity=3.0)

    assert [budget.take() for _ in range(5)] == [True, True, True, False, False]


def test_successes_earn_a_retry_bit_by_bit() -> None:
    budget = RetryBudget(capacity=1.0, earning=0.125)
    assert budget.take()

    for _ in range(7):
        budget.earn()
    assert not budget.take()
    budget.earn()

    assert budget.take()


def test_successes_never_save_up_more_than_the_capacity() -> None:
    budget = RetryBudget(capacity=2.0, earning=0.5)
    for _ in range(100):
        budget.earn()

    assert [budget.take() for _ in range(3)] == [True, True, False]
