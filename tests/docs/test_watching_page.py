"""The page on datasets that grow is true: its code runs, on the session that all tests share."""

import re

import pytest

import icevirt
from builds.support import assert_same_dataset, expected_dataset, opened, write_days
from docs import shell

PAGE = shell.section((shell.ROOT / "docs" / "living.md").read_text(), "Appending, streams")


@pytest.mark.ci
@pytest.mark.spark
def test_the_code_runs_from_top_to_bottom(spark, tmp_path, monkeypatch):
    """Two streams with checkpoints of their own name the same files: each is appended once."""
    monkeypatch.chdir(tmp_path)
    days = write_days(tmp_path / "archive", 3)
    names = {}
    blocks = list(re.finditer(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    assert len(blocks) == 4
    for block in blocks:
        above = "\n" * PAGE[: block.start(1)].count("\n")  # for the lines of a traceback
        exec(compile(above + block[1], "docs/living.md", "exec"), names)
    for repo in ("repo", "streamed"):
        assert_same_dataset(opened(repo), expected_dataset(days, "time"))
    commits = list(icevirt.Repository.open("streamed").ancestry(branch="main"))
    assert [each.metadata.get("icevirt_batch", {}).get("batch_id") for each in commits] == [0, None]
    assert commits[0].metadata["icevirt_batch"]["query_id"]
