"""The page on the history is true: its commands print what it says, its code runs."""

import re
import shlex
from pathlib import Path

import pytest

import icevirt
from builds.support import write_days

PAGE = (Path(__file__).parents[2] / "docs" / "history.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def same(text: str, folder: str = "/data") -> str:
    """Return text without what differs from run to run."""
    text = text.replace(folder, "/data")
    text = re.sub(r"\b[0-9A-HJKMNP-TV-Z]{20}\b", "ID", text)
    text = re.sub(r"\b[0-9a-f]{20}\b", "BUILD", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "TIME", text)
    text = re.sub(r"\d+ to \d+ \(\d+ bytes\)", "BYTES", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@pytest.mark.ci
@pytest.mark.usefixtures("in_process")
def test_the_transcript_is_what_the_commands_print(tmp_path, monkeypatch, run, capsys):
    monkeypatch.chdir(tmp_path)
    files = write_days(tmp_path / "archive")
    icevirt.build(files[:2], "repo", concat_dim="time")
    icevirt.build(files, "repo", concat_dim="time", mode="w")
    transcripts = [text for language, text in BLOCKS if not language]
    assert len(transcripts) == 8
    for transcript in transcripts:
        output = ""
        for line in re.findall(r"^\$ icevirt (.*)$", transcript, re.MULTILINE):
            _, out, err = run(*shlex.split(line))
            output += f"$ icevirt {line}\n{out}{err}"
        assert same(output, str(tmp_path)) == same(transcript)
    (code,) = [text for language, text in BLOCKS if language == "python"]
    (said,) = [text for language, text in BLOCKS if language == "text"]
    names = {}
    exec(compile(code, "docs/history.md", "exec"), names)
    names["ds"].close()
    assert capsys.readouterr().out == said
