"""Take the picture of a terminal for the README: ``python docs/site/picture.py``.

It makes the archive of the first tutorial in a folder of its own, runs the commands on a terminal,
and draws what they wrote.
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

DOCS = Path(__file__).parents[1]
PICTURE = DOCS / "figures" / "terminal.svg"
COLUMNS = 96
COMMANDS = ("icevirt build 'archive/*.nc' repo", "icevirt update repo", "icevirt log repo")
_THEME = TerminalTheme(
    (23, 27, 36),
    (222, 227, 236),
    [
        (23, 27, 36),
        (238, 111, 136),
        (53, 194, 156),
        (237, 160, 79),
        (111, 146, 255),
        (196, 140, 240),
        (90, 200, 225),
        (222, 227, 236),
    ],
)


def main() -> int:
    """Run the commands and write the picture."""
    page = (DOCS / "first-dataset.md").read_text()
    (program, *_) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", program], check=True, cwd=folder)
        lines = ""
        for command in COMMANDS:
            if "update" in command:
                more = program.replace("in 2001, 2002, 2003", "in (2004,)")
                subprocess.run([sys.executable, "-c", more], check=True, cwd=folder)
            said = on_a_terminal(command, folder).replace(f"file://{folder}", "file:///data")
            lines += f"\x1b[1;32m$\x1b[0m \x1b[1m{command}\x1b[0m\n{shortened(said)}\n\n"
    PICTURE.write_text(drawn(lines.replace(folder, "/data").rstrip()))
    return 0


def on_a_terminal(command: str, folder: str) -> str:
    """Return what a command writes to a terminal on stdout; progress is left out."""
    ours, theirs = pty.openpty()
    env = os.environ | {"COLUMNS": str(COLUMNS), "LINES": "80", "TERM": "xterm-256color"}
    path = Path(sys.executable).parent
    env["PATH"] = f"{path}:{env['PATH']}"
    with subprocess.Popen(
        ["/bin/sh", "-c", command], stdout=theirs, stderr=subprocess.DEVNULL, cwd=folder, env=env
    ):
        os.close(theirs)
        found = b""
        try:
            while piece := os.read(ours, 65536):
                found += piece
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    return found.decode().replace("\r\n", "\n").strip("\n")


def shortened(said: str) -> str:
    """Leave out what a picture need not repeat: the notes, and the call that opens the dataset."""
    plain = Text.from_ansi(said).plain.split("\n")
    ends = [at for at, line in enumerate(plain) if line.strip() in ("Notes", "Open it")]
    return "\n".join(said.split("\n")[: min(ends, default=len(plain))]).rstrip()


def drawn(lines: str) -> str:
    """Return the picture, which loads no font from anywhere."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(lines), no_wrap=True, overflow="ignore", crop=False)
    picture = console.export_svg(title="icevirt", theme=_THEME, unique_id="terminal")
    picture = re.sub(r"@font-face \{.*?\}\n", "", picture, flags=re.DOTALL)
    fonts = "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
    picture = re.sub(
        r"font-family: ?(?:Fira Code, ?monospace|arial)", f"font-family:{fonts}", picture
    )
    label = "Three commands of icevirt and what they print"
    picture = picture.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return re.sub(r"[ \t]+$", "", picture, flags=re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main())
