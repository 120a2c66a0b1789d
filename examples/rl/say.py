"""The log of a program: whole lines, at once, whichever thread says them."""

import sys


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")  # in one piece: print would write the end of the line by itself
    sys.stdout.flush()
