"""User names and passwords from netrc files: which file, which host, and what is never shown."""

import base64

import pytest

import icevirt
from icevirt.connect.credentials.http import FromNetrc
from icevirt.errors import InvalidInputError

SECRET = "CANARY-48"
HOST = "data.example"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    return tmp_path


def write(path, text=f"machine {HOST} login me password {SECRET}\n", mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


def output(credentials):
    return base64.b64decode(credentials.reveal()["authorization"].removeprefix("Basic ")).decode()


def test_the_file_at_home_counts_unless_another_is_named(home, monkeypatch):
    write(home / ".netrc")
    assert output(icevirt.http_credentials(netrc=True).of_host(HOST)) == f"me:{SECRET}"
    # as a secret that is mounted into a container
    write(home / "other", f"machine {HOST}\nlogin you\npassword x\n", 0o644)
    monkeypatch.setenv("NETRC", "~/other")
    assert output(FromNetrc().of_host(HOST)) == "you:x"


def test_the_default_entry_counts_for_other_hosts(home):
    write(home / ".netrc", f"machine {HOST} login a password b\ndefault login c password d\n")
    assert output(FromNetrc().of_host("elsewhere.example")) == "c:d"


LACKING = {
    "no file": (None, 0o600, "no netrc file"),
    "no entry": ("machine other.example login a password b\n", 0o600, "no entry"),
    "damaged": (f"machine {HOST} login {SECRET} {SECRET}\n", 0o600, "damaged in line"),
    "open to others": (f"machine {HOST} login a password {SECRET}\n", 0o644, "chmod 600"),
    "no text": (None, None, "cannot be used"),
}


@pytest.mark.parametrize(("text", "mode", "message"), LACKING.values(), ids=LACKING.keys())
def test_what_is_lacking_is_reported_without_the_secret(home, text, mode, message):
    if mode is None:
        (home / ".netrc").write_bytes(b"machine \xff\xfe")
        (home / ".netrc").chmod(0o600)
    elif text is not None:
        write(home / ".netrc", text, mode)
    with pytest.raises(InvalidInputError, match=message) as caught:
        FromNetrc().of_host(HOST)
    assert caught.value.facts["host"] == HOST
    assert SECRET not in str(caught.value)


def test_a_netrc_file_is_for_web_servers_and_no_other_kind_is_given_with_it(home):
    write(home / ".netrc")
    with pytest.raises(InvalidInputError, match="for web servers"):
        icevirt.build("s3://b/*.nc", home / "repo", access={"s3://b": "netrc"})
    with pytest.raises(InvalidInputError, match="conflicting"):
        icevirt.http_credentials(netrc=True, bearer_token=SECRET)
    with pytest.raises(InvalidInputError, match="do not change"):
        icevirt.http_storage(
            "https://a.example/r", credentials=icevirt.http_credentials(get_credentials=FromNetrc)
        )
