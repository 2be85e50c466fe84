"""The exit status says whether the same command may succeed when it is run again."""

import pytest

from icevirt import errors
from icevirt.cli.output import status_of

STATUSES = {
    errors.InvalidInputError: 1,
    errors.CombineError: 1,
    errors.VerificationError: 1,
    errors.StaleReferenceError: 1,
    errors.NotListableError: 1,
    errors.StorageError: 3,
    errors.ObjectNotFoundError: 3,
    errors.SparkJobError: 3,
    errors.JobsCancelledError: 4,
}


@pytest.mark.parametrize(("kind", "status"), STATUSES.items(), ids=str)
def test_a_status_tells_what_refused_from_what_failed(kind, status):
    assert status_of(kind("what", do="Do.")) == status


def test_files_of_which_a_storage_gave_no_bytes_are_no_bad_files():
    assert status_of(errors.ScanError("2 of 3 files cannot be scanned", unreadable=2)) == 3
    assert status_of(errors.ScanError("2 of 3 files cannot be scanned")) == 1
