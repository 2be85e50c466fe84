"""Ask the search of the built site what people look for: their pages have to come first.

The search is asked in Node by the script of the site itself; without Node nothing is checked.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FIRST = {
    "rechunk": "moving.html",
    "rollback": "history.html",
    "uninstall": "installing.html",
    "netcdf3": "scanners.html",
    "notebook": "examples.html",
    "undo": "history.html",
    "cron": "living.html",
    "kerchunk": "coming-from.html",
    "credentials": "credentials.html",
}
"""Words, and the page that has to be the first answer."""


def misplaced(html: Path) -> Iterator[str]:
    """Yield a line for each word whose page is not found first, or not found."""
    if (node := shutil.which("node")) is None:
        sys.stderr.write("the search is not checked: there is no node\n")
        return
    script = Path(__file__).with_name("search.mjs")
    asked = subprocess.run(
        [node, str(script), str(html), *FIRST], check=True, capture_output=True, text=True
    )
    for line in asked.stdout.splitlines():
        answer = json.loads(line)
        wanted = FIRST[answer["query"]]
        pages = [location.partition("#")[0] for location in answer["pages"]]
        if pages[:1] != [wanted]:
            found = ", ".join(answer["pages"])
            yield f"search for {answer['query']!r}: {wanted} is not first: {found}"
