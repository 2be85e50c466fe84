"""What the page says of a refused build is what the command prints."""

import re
import shlex
from pathlib import Path

from archives.refusals import absent, daily, field

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"


def test_the_refusal_on_the_page_is_what_the_command_prints(run, in_process, tmp_path, monkeypatch):
    (shown,) = re.findall(
        r"^```text\n\$ (icevirt build .*?)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    command, lines = shown
    monkeypatch.chdir(tmp_path)
    (tmp_path / "days").mkdir()
    daily(tmp_path / "days", range(5), hours=1, tas=field, pr=absent(1, 3))
    status, out, error = run(*shlex.split(command)[1:])
    assert (status, out) == (1, "")
    output = [line for line in error.splitlines() if not line.startswith("scan: ")]
    assert output == lines.splitlines()
