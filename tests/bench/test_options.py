"""Wrong options are told at once, not after minutes of measuring."""

import pytest

from bench.__main__ import main


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rounds", "0"], "--rounds: '0': give a whole number, 1 or more"),
        (["--jobs", "two"], "--jobs: 'two': give a whole number, 1 or more"),
        (["--jobs", "-1"], "--jobs: '-1': give a whole number, 1 or more"),
        (["--only", "z"], "--only: 'z': choose among a,b,c,d,e,f,g,h,i,j"),
    ],
)
def test_a_wrong_option_is_told(
    arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", *arguments])

    with pytest.raises(SystemExit):
        main()

    assert says in capsys.readouterr().err
