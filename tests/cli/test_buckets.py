"""Repositories in buckets that only options of the command line lead to."""

import json

import pytest

from builds.support import write_days

pytestmark = pytest.mark.servers


@pytest.fixture
def profile(tmp_path, monkeypatch):
    """A profile of ~/.aws, and an environment that knows nothing of the server."""
    keys = tmp_path / "credentials"
    keys.write_text("[mine]\naws_access_key_id = test\naws_secret_access_key = test\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", "default")  # to be put back
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    return "mine"


def test_options_lead_to_the_bucket_of_a_repository(s3, profile, in_process, tmp_path, run):
    write_days(tmp_path / "in", 2)
    how = ["--endpoint", s3.endpoint, "--region", "us-east-1", "--profile", profile]
    status, _, error = run("build", tmp_path / "in", s3.url, "--concat-dim", "time", "-q", *how)
    assert (status, error) == (0, "")
    status, output, _ = run("info", s3.url, "-o", "json", *how)
    assert status == 0
    assert json.loads(output)["repo"] == s3.url
    status, output, _ = run("branch", "list", s3.url, *how)
    assert status == 0
    assert "main" in output
    status, output, _ = run("log", s3.url, "--endpoint", s3.endpoint, "--anonymous")
    assert (status, "Build from 2 files" in output) == (0, True)
