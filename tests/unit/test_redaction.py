"""No error, log record or traceback shows user, password or query of a URL."""

import logging
import pickle
import traceback
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.api.events import tell
from icevirt.errors import IcevirtError, InvalidInputError, StorageError
from icevirt.redaction import without_secrets

TEXTS = {
    "a password": ("https://me:CANARY@host/a.nc", "https://host/a.nc"),
    "a user alone": ("https://CANARY@host/a.nc", "https://host/a.nc"),
    "capital letters": ("HTTPS://ME:CANARY@HOST/A", "HTTPS://HOST/A"),
    "a port": ("https://me:CANARY@host:8080/a", "https://host:8080/a"),
    "a slash in the password": ("https://me:CAN/CANARY@host/a", "https://host/a"),
    "an at sign in the password": ("https://me:CAN@CANARY@host/a", "https://host/a"),
    "keys of a bucket": ("s3://key:CANARY@bucket/a", "s3://bucket/a"),
    "a password where Azure has its container": (
        "abfss://c:CANARY@acc.dfs.core.windows.net/k",
        "abfss://c@acc.dfs.core.windows.net/k",
    ),
    "a URL that lost a slash": ("/data/https:/me:CANARY@host/a", "/data/https:/host/a"),
    "no scheme": ("//me:CANARY@host/a", "//host/a"),
    "a query": ("https://h/a.nc?CANARY", "https://h/a.nc?..."),
    "a query without a path": ("https://h?CANARY", "https://h?..."),
    "blanks and quotes in a query": ("https://h/a?b='CANARY' CANARY\n\"CANARY", "https://h/a?..."),
    "a signature of S3": (
        "https://b.s3.amazonaws.com/a?X-Amz-Signature=CANARY&X-Amz-Date=1",
        "https://b.s3.amazonaws.com/a?...",
    ),
    "a signature in a bucket's URL": ("s3://b/a?X-Amz-Signature=CANARY", "s3://b/a?..."),
    "a SAS token": ("az://c/a.nc?sv=2025&sig=CANARY", "az://c/a.nc?..."),
    "a fragment with a token": ("https://h/a#access_token=CANARY", "https://h/a#..."),
    "several, in a sentence": (
        "from http://u:CANARY@h:80/a?t=CANARY, to 'https://h/b?CANARY'",
        "from http://h:80/a?... to 'https://h/b?...'",
    ),
    "a path with its query": ("no host in /a.nc?sig=CANARY here", "no host in /a.nc?... here"),
    "a chain of fsspec": ("zip://a.nc::https://u:CANARY@h/x?CANARY", "zip://a.nc::https://h/x?..."),
    "a slash too many": ("https:///me:CANARY@host/a", "https:///host/a"),
    "something before the scheme": ("_https://me:CANARY@host/a", "_https://host/a"),
    "a URL in a path": ("https://p/https://u:CANARY@h/x?CANARY", "https://p/https://h/x?..."),
}
KEPT = {
    "a glob in a bucket": "s3://b/2020-??.nc",
    "a key with a question mark": "s3://b/what?.nc",
    "a container of Azure": "abfss://c@acc.dfs.core.windows.net/k",
    "a container of Azure, az": "az://c@acc.blob.core.windows.net/k",
    "an at sign in a path": "https://host:8080/runs@v1/a.nc",
    "an address of IPv6": "https://[::1]:80/a@b",
    "a local name": "file:///data/run:1@home/a.nc",
    "a token in a path": "https://host/token/abc/a.nc",
    "a question": "is it there? url='https://h/a.nc'",
    "a regular expression": "(?P<year>[0-9]+)=x",
    "what was shown already": "https://h/a.nc?...",
}


@pytest.mark.parametrize(("text", "shown"), TEXTS.values(), ids=TEXTS.keys())
def test_secrets_are_cut_out_of(text, shown):
    assert without_secrets(text) == shown
    assert without_secrets(shown) == shown


LONG = {  # backtracking or recursion would take hours, or the stack
    "URLs within URLs": "http://a/" * 20_000 + "u:CANARY@host/x",
    "URLs within URLs that lost a slash": "in http:/" * 20_000 + "u:CANARY@host/x",
    "users within users": "http://a@" * 20_000 + "/x?CANARY",
    "colons without a user": "//" + ":" * 500_000 + " https://u:CANARY@host",
    "points without a scheme": "a." * 500_000 + " https://u:CANARY@host",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_texts_that_others_made_long_are_cut_too(text):
    assert "CANARY" not in str(StorageError("failed", location=text))


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT.keys())
def test_nothing_is_cut_out_of(text):
    assert without_secrets(text) == text


PLAIN = st.text("abc019-._~%:!$&*+,;=@/?", max_size=8)


@given(PLAIN, PLAIN, st.sampled_from(["{}", "open {} failed", "Err('{}', 1)", "{{'a': '{}'}}"]))
def test_no_part_of_a_secret_survives_whatever_surrounds_it(before, after, text):
    """A query may hold everything; what stands before the host neither slash nor question mark."""
    query = f"{before}CANARY{after}"
    user = query.replace("/", "").replace("?", "")
    for url in (f"https://{user}@host/a.nc", f"https://host/a.nc?{query}"):
        assert "CANARY" not in without_secrets(text.format(url))


@pytest.mark.parametrize("text", [text for text, _ in TEXTS.values()], ids=TEXTS.keys())
def test_an_error_holds_no_secret_however_it_is_looked_at(text):
    error = StorageError(
        f"cannot read {text!r}" if "\n" not in text else text,
        do=text,
        url=text,
        several=[text, {"deep": (text,)}],
        path=PurePosixPath(text),
        raw=text.encode(),
        cause=OSError(text),
    )
    error.facts |= {"later": text}
    again = pickle.loads(pickle.dumps(error))
    for one in (error, again):
        assert "CANARY" not in f"{one} {one!r} {one.args} {one.facts} {one.what} {one.do}"
    assert b"CANARY" not in pickle.dumps(error)
    assert str(again) == str(error)


def test_a_fact_that_is_put_in_later_is_not_shown_either():
    error = IcevirtError("no")
    error.facts["url"] = "https://u:CANARY@h/a"
    assert "CANARY" not in str(error)
    assert b"CANARY" not in pickle.dumps(error)


class Holder:
    """An object of a library, whose representation quotes a URL."""

    def __repr__(self):
        return "Holder('https://u:CANARY@h/a')"


def test_an_object_among_the_facts_is_shown_without_secrets():
    assert str(IcevirtError("no", held=Holder())) == "no (held=Holder('https://h/a'))"


USER, QUERY = "https://u:CANARY@h/a", "https://h/a?CANARY"


def broken():
    try:
        {}[USER]
    except KeyError as error:
        raise OSError(5, "broken", QUERY) from error


def chained(*, explicit):
    try:
        broken()
    except OSError as error:
        if explicit:
            raise StorageError("cannot be read") from error
        raise StorageError("cannot be read")  # noqa: B904


@pytest.mark.parametrize("explicit", [True, False])
def test_a_traceback_shows_no_secret_of_the_errors_that_led_to_ours(explicit):
    with pytest.raises(StorageError) as raised:
        chained(explicit=explicit)
    output = "".join(traceback.format_exception(raised.value))
    assert "CANARY" not in output
    assert "KeyError: 'https://h/a'" in output
    assert "https://h/a?..." in output
    assert (output.count("in broken"), output.count("in chained")) == (
        2,
        2,
    )  # where each was raised


def test_errors_without_secrets_keep_the_very_errors_that_led_to_them():
    with pytest.raises(InvalidInputError) as raised:
        unchained(first := ValueError("no number"))
    assert raised.value.__cause__ is first


def unchained(first):
    raise InvalidInputError("no") from first


def test_a_long_chain_of_our_errors_is_shown_at_once():
    """Each looks after what led to it; all looking at all would take for ever."""
    error: BaseException = OSError("https://u:CANARY@h/a")
    for number in range(200):
        following = StorageError(f"number {number}")
        following.__cause__ = following.__context__ = error
        error = following
    assert "CANARY" not in "".join(traceback.format_exception(error))


def test_a_log_record_holds_no_secret_in_lists_either(caplog):
    with caplog.at_level(logging.INFO, "icevirt"):
        tell("test", urls=["https://u:CANARY@h/a"], more={"url": "https://h/?CANARY"})
    (record,) = caplog.records
    assert "CANARY" not in f"{record.getMessage()} {vars(record)}"
