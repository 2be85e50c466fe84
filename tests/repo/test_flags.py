"""What one client switches off, both refuse."""

import icechunk
import pytest

from icevirt.errors import InvalidInputError, SessionStateError
from icevirt.ids import INITIAL_SNAPSHOT_ID
from icevirt.repo.history.types import UpdateType
from repo.support import sound

ROOT = str(INITIAL_SNAPSHOT_ID)
NAMES = ["move_node", "create_tag", "delete_tag"]


def output(client):
    return sorted(
        (flag.id, flag.name, flag.default_enabled, flag.setting, flag.enabled)
        for flag in client.feature_flags()
    )


USES = {
    "move_node": lambda repo: repo.rearrange_session("main"),
    "create_tag": lambda repo: repo.create_tag("new", ROOT),
    "delete_tag": lambda repo: repo.delete_tag("old"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_feature_is_switched_off_and_on_for_both_clients(repo, official, name):
    assert output(repo) == output(official())
    repo.create_tag("old", ROOT)
    for setter, other in ((repo, official()), (official(), repo)):
        setter.set_feature_flag(name, False)
        assert [flag.name for flag in other.disabled_feature_flags()] == [name]
        with pytest.raises(SessionStateError, match=f"set_feature_flag\\('{name}', True\\)"):
            USES[name](repo)
        with pytest.raises(icechunk.SessionStateError):
            USES[name](official())
        setter.set_feature_flag(name, None)
        assert len(other.enabled_feature_flags()) == 3
    USES[name](repo)
    assert sound(repo.storage)


def test_settings_are_stored_as_the_official_client_stores_them(repo, official):
    steps = [("move_node", False), ("create_tag", True), ("move_node", None), ("delete_tag", False)]
    stored = []
    for client in (official(), repo):
        for name, setting in steps:
            client.set_feature_flag(name, setting)
            info = repo.head.read().info
            stored.append((info.enabled_feature_flags, info.disabled_feature_flags))
        for name in NAMES:
            client.set_feature_flag(name, None)
    assert stored[1:4] == stored[5:]
    kinds = [update.kind for update in repo.ops_log()][:7]
    assert kinds[3] == UpdateType.FeatureFlagChanged(5, new_value=False)
    assert kinds[4] == UpdateType.FeatureFlagChanged(3, new_value=None)


def test_what_is_no_feature_is_said(repo):
    with pytest.raises(InvalidInputError, match="move_node"):
        repo.set_feature_flag("nope", True)
