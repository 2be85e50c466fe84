"""The options of containers: which names there are, in which spellings, and with which values."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.connect.container import canonical, endpoint_of
from icevirt.connect.urls import endpoint
from icevirt.errors import InvalidInputError
from icevirt.model.config.containers import ObjectStoreConfig, VirtualChunkContainer

PREFIXES = {
    "s3": "s3://bucket/p/",
    "s3_compatible": "s3://bucket/p/",
    "tigris": "tigris://bucket/p/",
    "gcs": "gs://bucket/p/",
    "azure": "az://bucket/p/",
    "http": "https://host.example/p/",
    "local_file_system": "file:///data/",
}


def container(kind, options, prefix=None):
    return VirtualChunkContainer(prefix or PREFIXES[kind], ObjectStoreConfig(kind, options))


def read(kind, options, prefix=None):
    return canonical(container(kind, options, prefix)).options


SPELLINGS = {
    ("gcs", "base_url", "https://h"): [
        "base_url", "google_base_url", "GOOGLE_BASE_URL", "Base_Url", "gcs_base_url", "endpoint",
    ],
    ("gcs", "skip_signature", True): ["skip_signature", "google_skip_signature", "SKIP_SIGNATURE"],
    ("gcs", "timeout", "3s"): ["timeout", "google_timeout", "Google_Timeout"],
    ("azure", "account_name", "acc"): [
        "account", "account_name", "azure_storage_account_name", "AZURE_STORAGE_ACCOUNT_NAME",
        "Account", "azure_account_name", "azure_storage_account",
    ],
    ("azure", "endpoint", "https://h"): [
        "endpoint", "azure_endpoint", "azure_storage_endpoint", "AZURE_ENDPOINT", "EndPoint",
    ],
    ("azure", "skip_signature", True): ["skip_signature", "azure_skip_signature"],
    ("azure", "allow_http", True): ["allow_http", "azure_allow_http", "Azure_Allow_HTTP"],
    ("http", "timeout", "3s"): ["timeout", "TIMEOUT"],
    ("http", "redirect_hosts", "a.example,b.example:99"): ["redirect_hosts", "Redirect_Hosts"],
}  # fmt: skip
EACH = {
    f"{kind}: {given}": (kind, name, value, given)
    for (kind, name, value), spelled in SPELLINGS.items()
    for given in spelled
}


@pytest.mark.parametrize(("kind", "name", "value", "spelled"), EACH.values(), ids=EACH.keys())
def test_every_spelling_becomes_one_name(kind, name, value, spelled):
    given = "true" if value is True else value
    assert read(kind, {spelled: given}) == {name: value}


# every option that obstore has and that is for the only the reader may set
OTHERS = {
    "s3": [
        "Region", "REGION", "aws_region", "default_region", "endpoint", "aws_endpoint",
        "aws_endpoint_url", "aws_endpoint_url_s3", "Endpoint_URL", "bucket", "access_key_id",
        "secret_access_key", "session_token", "token", "metadata_endpoint", "endpoint_url_sts",
        "container_credentials_full_uri", "container_credentials_relative_uri",
        "container_authorization_token_file", "web_identity_token_file", "role_arn",
        "role_session_name", "s3_express", "virtual_hosted_style_request", "imdsv1_fallback",
        "copy_if_not_exists", "sse_customer_key_base64", "proxy_url", "root_certificate",
    ],
    "gcs": [
        "service_account", "service_account_path", "service_account_key", "google_service_account",
        "application_credentials", "bearer_token", "GOOGLE_BEARER_TOKEN", "proxy_url",
        "google_proxy_url", "proxy_ca_certificate", "proxy_excludes", "root_certificate",
        "allow_invalid_certificates", "disable_system_certificates", "base_url ", " base_url",
        "google_google_base_url", "aws_endpoint", "redirect_hosts", "headers", "credential_provider",
    ],
    "azure": [
        "access_key", "account_key", "azure_storage_account_key", "client_id", "client_secret",
        "tenant_id", "authority_host", "azure_authority_host", "AZURE_AUTHORITY_HOST", "sas_token",
        "sas_key", "token", "bearer_token", "use_emulator", "azure_storage_use_emulator",
        "msi_endpoint", "identity_endpoint", "federated_token_file", "use_fabric_endpoint",
        "use_azure_cli", "fabric_token_service_url", "fabric_workload_host", "credential_type",
        "encryption_key", "proxy_url", "azure_proxy_url", "allow_invalid_certificates",
    ],
    "http": [
        "proxy_url", "PROXY_URL", "proxy_ca_certificate", "root_certificate", "url", "host",
        "allow_invalid_certificates", "default_headers", "credentials", "netrc",
    ],
    "local_file_system": [],
}  # fmt: skip
OTHERS |= {"s3_compatible": OTHERS["s3"], "tigris": OTHERS["s3"]}
REFUSED = {f"{kind}: {name}": (kind, name) for kind, names in OTHERS.items() for name in names}


@pytest.mark.parametrize(("kind", "name"), REFUSED.values(), ids=REFUSED.keys())
def test_an_option_that_is_not_of_the_set_is_refused_by_name(kind, name):
    with pytest.raises(InvalidInputError, match="only the reader may set") as caught:
        read(kind, {name: "CANARY"})
    assert caught.value.facts["option"] == name
    assert "CANARY" not in str(caught.value)


@given(st.sampled_from(list(OTHERS)), st.text(), st.text() | st.integers() | st.booleans())
def test_whatever_else_it_says_is_refused_or_one_of_the_set(kind, name, value):
    try:
        found = read(kind, {name: value})
    except InvalidInputError:
        return
    assert set(found) <= {
        "region", "endpoint_url", "anonymous", "allow_http", "force_path_style", "requester_pays",
        "network_stream_timeout_seconds", "checksum_algorithm", "base_url", "skip_signature",
        "account_name", "endpoint", "redirect_hosts", "headers", "timeout", "user_agent",
        "connect_timeout", "read_timeout", "pool_idle_timeout", "default_content_type",
        "http1_only", "http2_only", "randomize_addresses", "pool_max_idle_per_host",
    }  # fmt: skip


VALUES = {
    "region": {
        "good": ["us-east-1", "auto", "garage", "US", "a", "1", "x" * 63],
        "bad": ["", "-a", "a-", "a.b", "a b", "a/b", "x@h", "a:1", "a\n", "a\\b", "a%2f", "é", "a_b",
                "x" * 64, "a\x00", "\uff41", 1, True, ["a"], {"a": 1}],
    },
    "endpoint_url": {
        "good": ["https://h", "http://h:9000", "https://h.example/s3", "HTTPS://H", "https://[::1]:9"],
        "bad": ["", "h", "//h", "ftp://h", "https://", "https://h:0", "https://h:65536", "https://h:x",
                "https://u@h", "https://u:p@h", "https://h?x", "https://h#x", "https://h\\x", "https://h ",
                " https://h", "https://h\n", "https://h/../x", "https://h/./x", "https://h/%2e", "https:h",
                "https:///h", "https:/\\h", "https://h.", "https://.h", "https://h..x", "https://-h",
                "https://[::1", "https://[x]", "https://é", "https://\uff48", "https://h/a b", "https://h:",
                "https://h:9\u0661", 1, ["https://h"]],
    },
    "anonymous": {"good": [True, False, "true", "FALSE", "1", "0"], "bad": ["yes", "", 2, "tru\u00e9", []]},
    "network_stream_timeout_seconds": {"good": [0, 60, "7"], "bad": [-1, 1.5, "x", True, 1 << 40, "\u0661"]},
}  # fmt: skip
GOOD = {f"{name} {value!r}": (name, value) for name, by in VALUES.items() for value in by["good"]}
BAD = {f"{name} {value!r}": (name, value) for name, by in VALUES.items() for value in by["bad"]}


@pytest.mark.parametrize("kind", ["s3", "s3_compatible", "tigris"])
@pytest.mark.parametrize(("name", "value"), GOOD.values(), ids=GOOD.keys())
def test_valid_values_are_read(kind, name, value):
    assert set(read(kind, {name: value})) == {name}


@pytest.mark.parametrize("kind", ["s3", "s3_compatible", "tigris"])
@pytest.mark.parametrize(("name", "value"), BAD.values(), ids=BAD.keys())
def test_values_that_are_not_valid_are_refused_by_name(kind, name, value):
    with pytest.raises(InvalidInputError, match="value is not valid") as caught:
        read(kind, {name: value})
    assert caught.value.facts["option"] == name


ACCOUNTS = ["", "ab", "x" * 25, "Evil", "a.b", "a/b", "evil.example/", "x@h", "a:1", "é", "a-b"]


@pytest.mark.parametrize("account", ACCOUNTS)
def test_an_account_is_what_azure_lets_one_be(account):
    with pytest.raises(InvalidInputError, match="value is not valid"):
        read("azure", {"account": account})


ELSEWHERE = {
    "Google's bucket": ("gcs", {"bucket": "other"}),
    "Google's bucket, another spelling": ("gcs", {"GOOGLE_BUCKET_NAME": "other"}),
    "Azure's container": ("azure", {"account": "acc", "azure_container_name": "other"}),
    "two servers": ("gcs", {"base_url": "https://a.example", "Base_Url": "https://b.example"}),
    "two accounts": ("azure", {"account": "one1", "account_name": "two2"}),
    "a host that is none": ("http", {"redirect_hosts": "a.example,https://b.example"}),
    "a host with a user name": ("http", {"redirect_hosts": "x@b.example"}),
    "a host with a path": ("http", {"redirect_hosts": "b.example/"}),
    "every host": ("http", {"redirect_hosts": "*"}),
    "hosts as a list": ("http", {"redirect_hosts": ["b.example"]}),
    "no options but a text": ("s3", "endpoint_url=https://evil.example"),
    "no options but a list": ("gcs", ["base_url"]),
    "a duration that is none": ("gcs", {"timeout": "3s\r\nx: y"}),
    "an agent that ends a line": ("gcs", {"user_agent": "a\r\nHost: x"}),
    "options of a directory": ("local_file_system", {"path": "/data"}),
    "options beside a file system": ("http", {"fsspec": "true", "proxy_url": "http://h"}),
}


@pytest.mark.parametrize(("kind", "options"), ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_what_leads_elsewhere_or_is_not_clear_is_refused(kind, options):
    with pytest.raises(InvalidInputError):
        read(kind, options)


def test_the_bucket_of_the_prefix_and_equal_repetitions_say_nothing_new():
    assert read("gcs", {"bucket": "bucket", "base_url": "https://h", "BASE_URL": "https://H/"}) == {
        "base_url": "https://h"
    }
    assert read("azure", {"account": "acc", "container_name": "bucket"}) == {"account_name": "acc"}


def test_what_is_null_is_not_said():
    assert read("s3", {"region": None, "endpoint_url": None, "of a later version": None}) == {}


NAMED = {
    "Amazon": ("s3", None, {}, None),
    "Amazon's own server": ("s3", None, {"endpoint_url": "https://S3.amazonaws.com/"}, None),
    "a region": ("s3", None, {"region": "eu-north-1"}, None),
    "Tigris by its scheme": ("tigris", None, {}, None),
    "Tigris by its kind": ("tigris", "s3://bucket/", {}, "https://t3.storage.dev"),
    "Google": ("gcs", None, {"base_url": "https://storage.googleapis.com/"}, None),
    "an account": ("azure", None, {"ACCOUNT": "acc"}, "https://acc.blob.core.windows.net"),
    "an account in the prefix": (
        "azure", "abfs://bucket@acc.dfs.core.windows.net/", {"account": "other"}, None,
    ),
    "an @ in the path": (
        "azure", "az://bucket/a@b/", {"account": "acc"}, "https://acc.blob.core.windows.net",
    ),
    "a server beside the account of the prefix": (
        "azure", "abfs://bucket@acc.dfs.core.windows.net/", {"endpoint": "https://h"}, "https://h",
    ),
    "a web server": ("http", None, {"redirect_hosts": "h"}, None),
    "a directory": ("local_file_system", None, "/data", None),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "prefix", "options", "named"), NAMED.values(), ids=NAMED.keys())
def test_the_server_that_has_to_be_authorized_is_the_one_that_the_options_name(
    kind, prefix, options, named
):
    assert endpoint_of(container(kind, options, prefix)) == named


@given(
    st.sampled_from(["http", "https"]),
    st.lists(st.text(string.ascii_letters + string.digits, min_size=1, max_size=9), min_size=1),
    st.none() | st.integers(1, 65535),
)
def test_an_endpoint_has_one_spelling(scheme, labels, port):
    text = f"{scheme}://{'.'.join(labels)[:200].rstrip('.')}" + ("" if port is None else f":{port}")
    found = endpoint(text)
    assert endpoint(found) == found
    for other in (text.upper(), f"{text}/", f"{text}//"):
        assert endpoint(other) == found
