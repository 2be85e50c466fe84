"""Profiles of Amazon's tools whose keys only boto3 gets: it is asked where it is installed."""

import sys
from datetime import UTC, datetime

import pytest

import icevirt
from icevirt.connect.credentials import object_stores
from icevirt.connect.credentials.common import Refresher, profile_region
from icevirt.connect.credentials.object_stores import PROFILE, from_profile
from icevirt.errors import InvalidInputError, StorageError

PROGRAM = """
import json, pathlib
calls = pathlib.Path({calls!r})
calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
print(json.dumps({answer!r}))
"""


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A home with an empty folder for Amazon's tools, and an environment without them."""
    for name in object_stores._ENOUGH:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / ".aws/credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / ".aws/config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / ".aws").mkdir()
    return tmp_path


def config(home, *lines):
    (home / ".aws/config").write_text("\n".join(["[profile work]", *lines, ""]))


def by_program(home, answer):
    """Let the profile name a program that answers and counts its calls."""
    program = home / "program.py"
    program.write_text(PROGRAM.format(calls=str(home / "calls"), answer=answer))
    config(home, f"credential_process = {sys.executable} {program}")


END = datetime(2100, 1, 1, tzinfo=UTC)
ANSWER = {
    "Version": 1,
    "AccessKeyId": "A",
    "SecretAccessKey": "CANARY",
    "SessionToken": "T",
    "Expiration": END.isoformat(),
}


def test_keys_come_from_the_program_that_a_profile_names(home):
    by_program(home, ANSWER)
    assert from_profile() == icevirt.S3StaticCredentials("A", "CANARY", "T")
    sent = Refresher(PROFILE)()
    assert (sent["access_key_id"], sent["secret_access_key"], sent["token"]) == ("A", "CANARY", "T")
    assert datetime.now(UTC) < sent["expires_at"] < END
    assert (home / "calls").read_text() == "x", "it is asked once while its keys are good"


def test_a_provider_that_fails_is_an_error_that_repeats_nothing(home):
    by_program(home, {"Version": 1, "AccessKeyId": "CANARY"})
    with pytest.raises(StorageError, match="boto3 gets no keys") as caught:
        from_profile()
    assert caught.value.facts["profile"] == "work"
    assert "CANARY" not in str(caught.value)
    assert caught.value.__context__ is None


def test_single_sign_on_that_has_not_happened_says_what_to_run(home):
    config(
        home,
        "sso_start_url = https://example.invalid/start",
        "sso_region = us-east-1",
        "sso_account_id = 123456789012",
        "sso_role_name = reader",
    )
    with pytest.raises(StorageError, match="aws sso login"):
        from_profile()


@pytest.fixture
def no_boto3(monkeypatch):
    """Where boto3 is not installed."""
    monkeypatch.setattr(object_stores, "find_spec", lambda name: None)


def test_without_boto3_a_profile_that_needs_it_names_it(home, no_boto3):
    config(home, "role_arn = arn:aws:iam::123456789012:role/reader", "source_profile = base")
    with pytest.raises(InvalidInputError, match="pip install boto3") as caught:
        from_profile()
    assert caught.value.facts["because"] == "role_arn"


def test_without_boto3_keys_that_are_written_out_are_used(home, no_boto3):
    config(home, "sso_session = corporate")
    (home / ".aws/credentials").write_text(
        "[work]\naws_access_key_id = B\naws_secret_access_key = CANARY\n"
    )
    assert from_profile() == icevirt.S3StaticCredentials("B", "CANARY")


def test_keys_that_are_written_out_are_read_again_when_tools_replace_them(home):
    for key in ("first", "second"):
        (home / ".aws/credentials").write_text(
            f"[work]\naws_access_key_id = {key}\naws_secret_access_key = CANARY\n"
        )
        assert from_profile() == icevirt.S3StaticCredentials(key, "CANARY")


def test_a_profile_that_says_nothing_about_keys_leaves_them_to_the_machine(home):
    config(home, "region = eu-west-1")
    assert from_profile() is None
    assert profile_region() == "eu-west-1"
