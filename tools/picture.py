"""Records the picture of the README: real runs in a terminal, drawn as SVG. ``make picture``."""

import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

from rich.color import Color
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

REPOSITORY = Path(__file__).parent.parent
PICTURE = REPOSITORY / "docs" / "terminal.svg"
COMMAND = Path(sys.executable).parent / "trainmaster"
HEIGHT, WIDTH = 24, 110
SHOWN = (
    "trainmaster run --replicas 2 -- python3 train.py 0.1 0.4",
    "trainmaster run --replicas 2 -- python3 train.py 0.1 3",
)

CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 18, 16
BACKGROUND = "#1d1f21"

_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_OTHERS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def program() -> str:
    """The first program of the README."""
    found = re.search(r"```python\n(# train\.py\n.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    if found is None:
        raise SystemExit("README.md has no block of Python that begins with: # train.py")
    return found[1]


def recorded(command: str, folder: Path) -> str:
    """All that the command writes into a terminal of its own."""
    master, window = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environ = {
        "PATH": f"{COMMAND.parent}:{os.defpath}",
        "HOME": str(folder),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
    }
    process = subprocess.Popen(command.split(), cwd=folder, env=environ, stdin=window, stdout=window, stderr=window)
    os.close(window)
    written = b""
    while True:
        try:
            written += os.read(master, 65536)
        except OSError:  # the command has ended
            break
    process.wait()
    os.close(master)
    return written.decode()


def kept(written: str) -> str:
    """What stays on the screen: nothing of the live view, which is on the alternate one. Colours stay."""
    before, _, rest = written.partition("\x1b[?1049h")
    whole = before + rest.rpartition("\x1b[?1049l")[2]
    return _OTHERS.sub(lambda found: found[0] if _COLOURS.fullmatch(found[0]) else "", whole).replace("\r\n", "\n")


def drawn(text: str) -> str:
    """The text as SVG: without fonts, which viewers do not load, and with a place for each word."""
    lines = Console(width=WIDTH, color_system="standard").render_lines(Text.from_ansi(text), pad=False)
    width, height = round(WIDTH * CELL_WIDTH + 2 * MARGIN), round(len(lines) * CELL_HEIGHT + 2 * MARGIN)
    words = "\n".join(word for row, line in enumerate(lines) for word in _words(row, line))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14">\n'
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>\n{words}\n</svg>\n'
    )


def _words(row: int, line: list[Segment]) -> Iterator[str]:
    column = 0
    for segment in line:
        for word in re.finditer(r"\S+", segment.text):
            x, y = MARGIN + (column + word.start()) * CELL_WIDTH, MARGIN + (row + 0.75) * CELL_HEIGHT
            place = f'x="{x:.1f}" y="{y:.1f}" textLength="{len(word[0]) * CELL_WIDTH:.1f}"'
            yield f"<text {place} {_look(segment.style or Style())}>{html.escape(word[0])}</text>"
        column += segment.cell_length


def _look(style: Style) -> str:
    colour = (style.color or Color.default()).get_truecolor(MONOKAI).hex
    return f'fill="{colour}"' + ' font-weight="bold"' * bool(style.bold) + ' opacity="0.6"' * bool(style.dim)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(program())
        screens = [f"\x1b[1m$ {command}\x1b[0m\n{kept(recorded(command, folder))}" for command in SHOWN]
    PICTURE.write_text(drawn("\n".join(screens).replace(name, "/home/you")))
    print(f"{PICTURE} is written; look at it before you commit it")


if __name__ == "__main__":
    main()
