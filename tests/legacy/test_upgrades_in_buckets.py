"""An old repository in a bucket: its upgrade goes on after an error, and never writes to it."""

from dataclasses import replace

import icechunk
import pytest

import icevirt
from icevirt.errors import StorageError
from legacy.old_repositories import files
from legacy.test_old_formats import everything, opened
from servers import azurite
from servers.faults import Rules, refused
from servers.proxy import passing_on
from servers.serving import served

pytestmark = pytest.mark.servers
SECRETS = {
    "s3": {"access_key_id": "test", "secret_access_key": "test"},
    "azure": {"access_key": azurite.KEY},
}


@pytest.mark.parametrize("kind", SECRETS)
def test_in_a_bucket_an_upgrade_goes_on_and_the_old_repository_is_only_read(request, kind):
    place = request.getfixturevalue(kind)
    account = f"/{azurite.ACCOUNT}" if kind == "azure" else ""
    rules = Rules()
    with served(passing_on(place.endpoint.removesuffix(account)), rules) as url:
        server = url + account
        old, new, thin = (
            replace(place, endpoint=server, prefix=f"{place.prefix}/{name}")
            for name in ("old", "new", "thin")
        )
        found = files("E6")
        for path, body in found.items():
            old.icevirt().put(path, body)
        for method in ("PUT", "POST", "DELETE"):
            rules.add(refused(403, "AccessDenied"), method=method, target="/old/", times=1e9)
        rules.add(refused(400, "Broken"), method="PUT", target="/new/manifests/", nth=2, times=1)

        with pytest.raises(StorageError):
            icevirt.upgrade(old.icevirt(), new.icevirt())
        assert not icevirt.Repository.exists(new.icevirt())
        copied = len([*new.icevirt().list("chunks")])
        report = icevirt.upgrade(old.icevirt(), new.icevirt())
        assert (report.ok, copied + report.chunks) == (True, 4)
        assert icevirt.check(new.icevirt()).problems == ()
        seen = everything(icechunk.Repository.open(new.official()), None)
        assert everything(opened(old.icevirt()), None) == seen

        report = icevirt.upgrade(old.icevirt(), thin.icevirt(), chunks="reference")
        prefix = f"{old.url}/chunks/"
        assert (prefix, server) in report.authorize
        assert not [*thin.icevirt().list("chunks")]
        secret = SECRETS[kind]
        ours = icevirt.Repository.open(
            thin.icevirt(),
            authorize_virtual_chunk_access={
                (prefix, server): getattr(icevirt, f"{kind}_credentials")(**secret)
            },
        )
        theirs = icechunk.Repository.open(
            thin.official(),
            authorize_virtual_chunk_access=icechunk.containers_credentials(
                {prefix: getattr(icechunk, f"{kind}_credentials")(**secret)}
            ),
        )
        assert everything(ours, None) == everything(theirs, None) == seen
        assert {info.path: old.icevirt().get(info.path) for info in old.icevirt().list()} == found
        assert rules.hits == 1
