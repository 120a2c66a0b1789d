import click
import pytest
from click.testing import CliRunner, Result

from trainmaster.cli.option import Duration, GoCommand


@click.command(cls=GoCommand)
@click.option("--wait", type=Duration(), default="1m30s")
@click.option("--elect/--no-elect", default=False)
@click.option("--name", default="")
def command(wait: float, elect: bool, name: str) -> None:
    click.echo(f"{wait:g} {elect} {name}".strip())


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args)


# --- durations ---


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("2s", 2, id="seconds"),
        pytest.param("15m", 900, id="minutes"),
        pytest.param("1h", 3600, id="hours"),
        pytest.param("500ms", 0.5, id="milliseconds"),
        pytest.param("1m30s", 90, id="two parts"),
        pytest.param("1h2m3s4ms", 3723.004, id="all parts"),
        pytest.param("1.5h", 5400, id="fraction"),
        pytest.param("0.25s", 0.25, id="fraction of a second"),
        pytest.param("0", 0, id="zero needs no unit"),
        pytest.param("0s", 0, id="zero with unit"),
    ],
)
def test_a_duration_is_written_as_in_go(text: str, seconds: float) -> None:
    assert run(f"--wait={text}").output.split()[0] == f"{seconds:g}"
    assert Duration().convert(text, None, None) == pytest.approx(seconds)


def test_where_seconds_are_usual_a_duration_needs_no_unit() -> None:
    assert Duration(takes_seconds=True).convert("15", None, None) == 15.0
    assert Duration(takes_seconds=True).convert("1m", None, None) == 60.0


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("15", id="no unit"),
        pytest.param("", id="empty"),
        pytest.param("s", id="no number"),
        pytest.param("-2s", id="negative"),
        pytest.param("2 s", id="blank"),
        pytest.param("2d", id="days"),
        pytest.param("2s3", id="rest without unit"),
        pytest.param("2S", id="capital"),
        pytest.param("two seconds", id="words"),
        pytest.param("1s\n", id="line end"),
    ],
)
def test_a_bad_duration_is_told_with_what_would_be_a_good_one(text: str) -> None:
    result = run(f"--wait={text}")

    assert result.exit_code == 2
    assert f"{text!r} is not a duration; write for example 2s, 1m30s or 500ms" in result.stderr


def test_a_default_is_a_duration_too() -> None:
    assert run().output == "90 False\n"


# --- booleans ---


@pytest.mark.parametrize(
    ("arg", "value"),
    [
        pytest.param("--elect", True, id="bare"),
        pytest.param("--no-elect", False, id="negated"),
        pytest.param("--elect=true", True, id="true"),
        pytest.param("--elect=false", False, id="false"),
        pytest.param("--elect=True", True, id="capital"),
        pytest.param("--elect=1", True, id="one"),
        pytest.param("--elect=0", False, id="zero"),
        pytest.param("--elect=t", True, id="letter t"),
        pytest.param("--elect=F", False, id="letter F"),
    ],
)
def test_a_boolean_is_written_as_in_go(arg: str, value: bool) -> None:
    assert run(arg).output == f"90 {value}\n"


@pytest.mark.parametrize("value", [pytest.param("maybe", id="word"), pytest.param("", id="empty")])
def test_a_boolean_that_is_neither_is_told(value: str) -> None:
    result = run(f"--elect={value}")

    assert result.exit_code == 2
    assert f"Invalid value for --elect: {value!r} is neither true nor false" in result.stderr


def test_the_last_of_two_booleans_counts() -> None:
    assert run("--elect=true", "--elect=false").output == "90 False\n"


def test_other_options_keep_their_values() -> None:
    assert run("--name=true", "--wait=2s").output == "2 False true\n"
    assert run("--name=a=b").output == "90 False a=b\n"


def test_an_unknown_option_is_an_error() -> None:
    assert "No such option" in run("--unknown=true").stderr
