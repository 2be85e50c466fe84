"""What refuses a public bucket names the option that reaches it: of a build, a reader, a store."""

import pytest

from icevirt.connect.library import ask
from icevirt.errors import StorageError
from icevirt.objects import answers
from icevirt.scan.registry import scanners  # noqa: F401  # what a build has loaded


class GenericError(Exception):
    """As obstore raises them."""


GenericError.__module__ = "obstore.exceptions"
REFUSALS = {
    "no credentials": "error sending request for url (http://169.254.169.254/latest/api/token)",
    "forbidden": "Client error with status code: 403 Forbidden: no body",
    "access denied": "status code: 403 Forbidden: <Error><Code>AccessDenied</Code></Error>",
}


@pytest.mark.parametrize("text", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("url", ["s3://archive", "s3://archive/2024/a.nc"])
def test_a_store_that_refuses_is_reached_by_what_is_named(text, url):
    def act():
        raise GenericError(text)

    with pytest.raises(StorageError) as caught:
        ask(url, act)
    assert 'access={"s3://archive/": "anonymous"}' in caught.value.do
    said = caught.value.do.in_flags("")
    assert "--access s3://archive/=anonymous for source files" in said
    assert "--anonymous for a repository" in said


def test_a_file_that_is_refused_names_the_options_of_builds_and_of_readers():
    refused = answers.denial(
        "s3://archive/a.nc", "s3://archive/", reason="AccessDenied", with_credentials=False
    )
    said = refused.do.in_flags("")
    assert "--access s3://archive/=HOW" in said
    assert "--authorize s3://archive/=HOW" in said
    assert "anonymous" in said
    assert "--anonymous" not in said
