"""Archives are built in this process."""

import pytest
import zarr


@pytest.fixture(autouse=True)
def _in_process(in_process):
    """Tasks run here, one after the other; readers did what errors ask of them."""
    with zarr.config.set({"array.rectilinear_chunks": True}):
        yield


def pytest_collection_modifyitems(items):
    """Compare the page with the run after all archives."""
    items.sort(key=lambda item: item.name == "test_the_page_says_what_this_run_found")
