"""``icevirt append`` passes on what it was told, and says what was new."""

import json

import pytest

from builds.support import assert_same_dataset, expected_dataset, opened, write_days


@pytest.mark.usefixtures("in_process")
def test_the_command_appends_what_is_new_and_says_so(run, tmp_path):
    days, repo = write_days(tmp_path / "days", 3), tmp_path / "repo"
    status, output, _ = run("append", days[0], repo)
    assert status == 0
    assert "1 file; 0 were there already" in output
    status, output, _ = run("append", tmp_path / "days", repo, "--output", "json")
    found = json.loads(output)
    assert (status, found["files_appended"], found["files_known"]) == (0, 2, 1)
    status, output, _ = run("append", tmp_path / "days", repo)
    assert status == 0
    assert "Nothing to append" in output
    assert_same_dataset(opened(str(repo)), expected_dataset(days, "time"))


@pytest.mark.usefixtures("in_process")
def test_a_refusal_shows_the_command_that_works(run, tmp_path):
    write_days(tmp_path / "one", 1)
    days, repo = write_days(tmp_path / "days", 2), tmp_path / "repo"
    run("append", tmp_path / "one", repo)
    status, _, output = run("append", days[1], repo)
    assert status == 1
    assert f"--authorize file://{tmp_path}/one/" in output
    assert run("append", days[1], repo, "--authorize", tmp_path / "one")[0] == 0
