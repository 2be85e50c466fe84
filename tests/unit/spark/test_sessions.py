"""What takes a Spark session says what it was given in its place."""

import pytest

import icevirt
import icevirt.spark
from icevirt.errors import InvalidInputError

FUNCTIONS = {
    "register": lambda given, _: icevirt.spark.register(given),
    "ship": lambda given, _: icevirt.spark.ship(given),
    "table": lambda given, repo: icevirt.spark.table(given, repo, "arrays"),
    "a catalog": lambda given, repo: icevirt.catalog_view(f"{repo}-catalog").dataframe(
        given, "files"
    ),
}


class Context:
    """A SparkContext is no session."""


@pytest.mark.parametrize("call", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize(
    "given", [None, "spark", Context()], ids=["none is active", "a word", "a context"]
)
def test_what_is_no_session_is_refused_in_one_sentence(given, call, tmp_path, in_process, days):
    repo = str(tmp_path / "repo")
    icevirt.build(days, repo, concat_dim="time", catalog=f"{repo}-catalog")
    with pytest.raises(InvalidInputError, match=r"not a Spark session.*builder\.getOrCreate\(\)"):
        call(given, repo)


@pytest.mark.parametrize("given", [None, [], "references"])
def test_what_is_no_data_frame_is_refused(given, tmp_path):
    with pytest.raises(InvalidInputError, match="no data frame of Spark"):
        icevirt.spark.write_references(given, str(tmp_path / "repo"))
    assert not (tmp_path / "repo").exists()
