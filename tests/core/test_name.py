import pytest

from trainmaster.core.name import child_name_error


@pytest.mark.parametrize(
    "child",
    [
        pytest.param("mnist-trainer-0", id="ordinary"),
        pytest.param("a", id="one letter"),
        pytest.param("a" + "b" * 62, id="63 characters"),
    ],
)
def test_a_dns_label_is_a_good_name(child: str) -> None:
    assert child_name_error("mnist", child) == ""


@pytest.mark.parametrize(
    "child",
    [
        pytest.param("7up-trainer-0", id="starts with a digit"),
        pytest.param("my.job-trainer-0", id="a dot"),
        pytest.param("Mnist-trainer-0", id="upper case"),
        pytest.param("-mnist", id="starts with a dash"),
        pytest.param("mnist-", id="ends with a dash"),
        pytest.param("mnist-trainer-0\n", id="a line feed at the end"),
        pytest.param("", id="empty"),
    ],
)
def test_a_name_that_no_service_can_have_is_refused_with_both_names(child: str) -> None:
    error = child_name_error("the-job", child)

    assert "'the-job' must start with a letter" in error
    assert repr(child) in error


def test_the_error_of_a_long_name_has_the_excess_length() -> None:
    error = child_name_error("the-job", "a" * 66)

    assert "would have 66 characters, 63 are allowed" in error
    assert "shorten the job's name by 3" in error
