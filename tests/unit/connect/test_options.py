"""Options of stores: icechunk's names, what the environment adds, and what is refused."""

import icechunk
import icechunk.storage
import pytest

import icevirt
from icevirt.connect.container import canonical_store
from icevirt.connect.credentials.common import Anonymous
from icevirt.connect.options import config_of
from icevirt.connect.stores import bucket_of
from icevirt.errors import InvalidInputError
from icevirt.model.config.containers import ObjectStoreConfig

NAMES = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3",
    "AWS_ALLOW_HTTP", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
    "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT",
)  # fmt: skip


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """An environment that says nothing about any cloud."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def options(url, config=None):
    made = bucket_of(url, config).options
    return dict(made.store) | dict(made.client)


def test_s3_options_have_obstores_names():
    found = options(
        "s3://bucket/p",
        icevirt.s3_store(
            region="eu-north-1",
            endpoint_url="http://host:1",
            allow_http=True,
            requester_pays=True,
            network_stream_timeout_seconds=7,
            checksum_algorithm="sha256",
        ),
    )
    assert found == {
        "region": "eu-north-1",
        "aws_endpoint_url_s3": "http://host:1",
        "allow_http": True,
        "request_payer": True,
        "read_timeout": "7s",
        "timeout": "1h",
        "connect_timeout": "10s",
        "checksum_algorithm": "sha256",
        "virtual_hosted_style_request": False,
    }
    assert "read_timeout" not in options(
        "s3://bucket/p", icevirt.s3_store(network_stream_timeout_seconds=0)
    )


HOSTED = {
    "at Amazon": ("bucket", {}, True),
    "at Amazon, a dot in the name": ("my.bucket", {}, False),
    "path style": ("bucket", {"force_path_style": True}, False),
    "elsewhere": ("bucket", {"endpoint_url": "https://minio.example"}, False),
    "elsewhere, the bucket in the host": ("b", {"endpoint_url": "https://b.oss.example"}, True),
}


@pytest.mark.parametrize(("bucket", "given", "hosted"), HOSTED.values(), ids=HOSTED.keys())
def test_the_bucket_is_part_of_the_host_where_that_works(bucket, given, hosted):
    found = options(f"s3://{bucket}/p", icevirt.s3_store(**given))
    assert found["virtual_hosted_style_request"] is hosted


def test_the_environment_fills_in_what_is_left_open(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://host:2")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    found = options("s3://bucket/p")
    assert (found["aws_endpoint_url_s3"], found["region"]) == ("http://host:2", "eu-west-1")
    given = options("s3://bucket/p", icevirt.s3_store(region="x", endpoint_url="https://given"))
    assert (given["aws_endpoint_url_s3"], given["region"]) == ("https://given", "x")


def test_the_files_of_amazons_tools_give_keys_and_region(monkeypatch, tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "[default]\naws_access_key_id = A\naws_secret_access_key = CANARY\n"
        "[work]\naws_access_key_id = B\naws_secret_access_key = CANARY%%\n"
    )
    (tmp_path / ".aws/config").write_text("[profile work]\nregion = ap-east-1\n")
    from icevirt.connect.credentials.object_stores import from_profile

    assert options("s3://bucket/p")["region"] == "us-east-1"
    assert from_profile() == icevirt.S3StaticCredentials("A", "CANARY")
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert options("s3://bucket/p")["region"] == "ap-east-1"
    assert from_profile() == icevirt.S3StaticCredentials("B", "CANARY%%")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from the environment")
    assert from_profile() is None


def test_azure_wants_an_account_from_somewhere(monkeypatch):
    with pytest.raises(InvalidInputError, match="account"):
        bucket_of("az://container/p")
    assert options("abfss://c@acc.dfs.core.windows.net/p")["account_name"] == "acc"
    given = icevirt.azure_store(account="acc", config={"azure_storage_endpoint": "https://x"})
    assert options("az://c/p", given)["endpoint"] == "https://x"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "theirs")
    assert options("az://c/p")["account_name"] == "theirs"


def test_an_anonymous_store_needs_no_credentials():
    config = icevirt.s3_store(anonymous=True)
    assert bucket_of("s3://b/p", config).credentials == Anonymous("s3")


REFUSED = {
    "unknown option": lambda: bucket_of("s3://b/p", ObjectStoreConfig("s3", {"reigon": "x"})),
    "another store": lambda: bucket_of("s3://b/p", icevirt.gcs_store()),
    "unknown to obstore": lambda: bucket_of("gs://b/p", icevirt.gcs_store({"bogus": "x"})).store(),
    "http option": lambda: bucket_of("https://h/p", icevirt.http_store({"bogus": "x"})),
    "checksum": lambda: icevirt.s3_storage(bucket="b", prefix="p", checksum_algorithm="crc32"),
    "a password in the endpoint": lambda: icevirt.s3_storage(
        bucket="b", prefix="p", endpoint_url="https://me:CANARY@host"
    ),
    "a secret of gcs": lambda: icevirt.gcs_store({"google_service_account_key": "CANARY"}),
    "a secret of azure": lambda: icevirt.azure_store(account="a", config={"sas_token": "CANARY"}),
    "a secret header": lambda: icevirt.http_store(headers={"Authorization": "CANARY"}),
    "an API key": lambda: icevirt.http_store(headers={"x-api-key": "CANARY"}),
    "bad service account": lambda: bucket_of(
        "gs://b/p", None, icevirt.gcs_credentials(service_account_key="CANARY")
    ).store(),
    "bad SAS": lambda: icevirt.azure_storage(
        account="a", container="c", prefix="p", sas_token="CANARY", config={"bogus": "1"}
    ).get("x"),
}  # fmt: skip


@pytest.mark.parametrize("act", REFUSED.values(), ids=REFUSED.keys())
def test_options_that_cannot_be_right_are_refused_without_secrets(act):
    with pytest.raises(InvalidInputError) as caught:
        act()
    assert "CANARY" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_container_whose_writers_use_another_checksum_is_reached():
    options = {"checksum_algorithm": "crc32"}
    assert "checksum_algorithm" not in dict(
        bucket_of("s3://b/p", ObjectStoreConfig("s3", options)).options.store
    )


def test_a_proxy_with_a_password_is_not_shown():
    made = icevirt.gcs_storage(
        bucket="b", prefix="p", config={"proxy_url": "http://me:CANARY@host"}, anonymous=True
    )
    assert "CANARY" not in repr(made._bucket)
    assert made._bucket.store() is not None


def test_secrets_among_the_options_of_others_are_not_shown():
    config = ObjectStoreConfig("gcs", {"google_service_account_key": "CANARY"})
    assert "CANARY" not in repr(bucket_of("gs://b/p", config))


def _azure_store(module):
    return icevirt.azure_store if module is icevirt else icechunk.storage.azure_store


CONFIGS = {
    "s3": (
        "s3://bucket/p/",
        lambda m: m.s3_store(region="eu-north-1", anonymous=True, requester_pays=True),
    ),
    "s3 compatible": (
        "s3://bucket/p/",
        lambda m: m.s3_store(
            endpoint_url="http://h", allow_http=True, s3_compatible=True, force_path_style=True
        ),
    ),
    "gcs": ("gs://bucket/p/", lambda m: m.gcs_store({"google_skip_signature": "true"})),
    "azure": ("az://container/p/", lambda m: _azure_store(m)(account="acc", config={"a": "b"})),
    "http": ("https://host/p/", lambda m: m.http_store({"timeout": "3s"}, {"x-a": "b"})),
    "http, bare": ("https://host/p/", lambda m: m.http_store()),
}


@pytest.mark.parametrize(("prefix", "make"), CONFIGS.values(), ids=CONFIGS.keys())
def test_configs_are_persisted_as_the_official_client_persists_them(prefix, make, tmp_path):
    """Both write a repository with the container; the documents are the same."""
    theirs = icechunk.RepositoryConfig.default()
    theirs.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, make(icechunk)))
    storage = icechunk.local_filesystem_storage(str(tmp_path / "theirs"))
    icechunk.Repository.create(storage, config=theirs).save_config()
    found = icevirt.Repository.open(tmp_path / "theirs").config
    assert found.virtual_chunk_containers[prefix] == icevirt.VirtualChunkContainer(
        prefix, make(icevirt)
    )


SAME = {
    "amazon": ("s3://bucket/p", lambda: icevirt.s3_store(region="eu-north-1")),
    "public": ("s3://a.bucket/p", lambda: icevirt.s3_store(anonymous=True, requester_pays=True)),
    "a server": ("s3://b/p", lambda: icevirt.s3_store(endpoint_url="http://h:1", allow_http=True)),
    "its bucket as host": ("s3://b/p", lambda: icevirt.s3_store(endpoint_url="https://b.h:1")),
    "google": ("gs://bucket/p", icevirt.gcs_store),
    "a server like it": (
        "gs://bucket/p",
        lambda: icevirt.gcs_store({"google_base_url": "http://h:1", "allow_http": "true"}),
    ),
    "azure": ("az://container/p", lambda: icevirt.azure_store(account="acc")),
    "azurite": (
        "az://container/p",
        lambda: icevirt.azure_store(
            account="acc",
            config={"azure_storage_endpoint": "http://h:1/acc", "azure_allow_http": "true"},
        ),
    ),
}


@pytest.mark.parametrize("which", SAME)
def test_a_container_can_say_how_a_storage_is_reached(which):
    url, make = SAME[which]
    bucket = bucket_of(url, make())
    output = canonical_store(config_of(bucket.address, bucket.options), f"{url}/")
    again = bucket_of(url, output)
    assert again.options == bucket.options
    assert again.endpoint == bucket.endpoint


def test_it_says_what_only_the_environment_said(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://h:1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    output = icevirt.s3_storage(
        bucket="b", prefix="p", secret_access_key="S", access_key_id="K"
    ).config
    assert output.options["endpoint_url"] == "http://h:1"
    assert (output.options["region"], output.options["allow_http"]) == ("eu-north-1", True)
    assert not {"S", "K"} & set(map(str, output.options.values()))
