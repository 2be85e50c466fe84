"""Each file of these tests is a part, as it is where files are large or many."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _a_part_each(part_of_each_file):
    """Parts are damaged, exchanged and left out one by one."""
