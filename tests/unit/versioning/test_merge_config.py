"""Configurations combine as the official client combines them, and concurrent edits both survive."""

from icevirt.model.config.document import merge_documents, persistable, rebase_documents


def test_what_is_given_wins_field_by_field():
    persisted = {"a": 1, "compression": {"level": 3, "algorithm": "zstd"}, "unknown": {"x": 1}}
    given = {"a": 2, "compression": {"level": 9}, "b": None}
    assert merge_documents(persisted, given) == {
        "a": 2,
        "compression": {"level": 9, "algorithm": "zstd"},
        "unknown": {"x": 1},
        "b": None,
    }


def test_null_means_not_given():
    assert merge_documents({"a": 1}, {"a": None}) == {"a": 1}


def test_containers_and_splitting_are_replaced_as_a_whole():
    persisted = {"virtual_chunk_containers": {"x": 1}, "manifest": {"splitting": {"p": 1}, "o": 1}}
    given = {"virtual_chunk_containers": {"y": 2}, "manifest": {"splitting": {"q": 1}}}
    assert merge_documents(persisted, given) == {
        "virtual_chunk_containers": {"y": 2},
        "manifest": {"splitting": {"q": 1}, "o": 1},
    }


def test_two_writers_that_each_add_a_container_both_keep_theirs():
    base = {"virtual_chunk_containers": {"a": 1}}
    mine = {"virtual_chunk_containers": {"a": 1, "b": 2}}
    theirs = {"virtual_chunk_containers": {"a": 1, "c": 3}, "new": True}
    assert rebase_documents(base, mine, theirs) == {
        "virtual_chunk_containers": {"a": 1, "b": 2, "c": 3},
        "new": True,
    }


def test_what_was_removed_is_removed_and_what_was_not_touched_stays():
    assert rebase_documents({"a": 1, "b": 1}, {"b": 1}, {"a": 1, "b": 2}) == {"b": 2}
    assert rebase_documents({}, {"a": {"x": 1}}, {"a": 5}) == {"a": {"x": 1}}


def test_storage_is_null_unless_the_user_set_it():
    assert persistable({"a": 1}) == {"a": 1, "storage": None}
    assert persistable({"storage": {"x": 1}}) == {"storage": {"x": 1}}
