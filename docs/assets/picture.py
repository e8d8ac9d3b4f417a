"""Turns what a command prints into an SVG: python picture.py OUTPUT.svg TITLE COMMAND..."""

import os
import re
import subprocess
import sys

from rich.console import Console
from rich.text import Text

WIDTH = 76


def picture(printed: str, title: str) -> str:
    """`printed`: terminal output, with its colours. Returns the SVG of a terminal window that shows it."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere)
        console.print(Text.from_ansi(printed.rstrip()))
    svg = console.export_svg(title=title, unique_id="picture")
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # a picture loads no fonts from elsewhere


if __name__ == "__main__":
    target, title, *command = sys.argv[1:]
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    with open(target, "w") as file:
        file.write(picture(done.stdout, title))
