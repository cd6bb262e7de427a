"""Archive URLs: what opens which driver, and what a mistake is told."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from botocore.awsrequest import AWSRequest

from tests.kit.fakes3 import FakeS3
from tests.kit.peer import peer
from tiered.clock import ManualClock
from tiered.errors import Denied, Invalid, TieredError, Unavailable
from tiered.provider.base import Provider
from tiered.provider.fsspec import FsspecProvider
from tiered.provider.fsspecparts import s3_options
from tiered.provider.memory import MemoryProvider
from tiered.provider.open import located, open_driver, open_provider
from tiered.provider.posix import PosixProvider
from tiered.provider.s3 import S3Provider
from tiered.provider.s3answers import StoreAnswers
from tiered.provider.s3client import make_client, make_session, sends_only_to
from tiered.provider.wrap import Metered, Retrying, Throttled
from tiered.settings import Store

CLOCK = ManualClock()


def opened(url: str, **store: object) -> Provider:
    return open_driver(url, Store(**store), CLOCK)  # type: ignore[arg-type]


def failure(url: str, **store: object) -> str:
    with pytest.raises(Invalid) as caught:
        opened(url, **store)
    return str(caught.value)


@pytest.mark.parametrize(
    ("url", "driver", "shown"),
    [
        ("file:///data/archive", PosixProvider, "file:///data/archive"),
        ("file:///data/with%20space/", PosixProvider, "file:///data/with%20space"),
        ("memory://name", MemoryProvider, "memory://name"),
        ("memory://", MemoryProvider, "memory://"),
        ("s3://bucket", S3Provider, "s3://bucket"),
        ("s3://bucket/pre/fix/", S3Provider, "s3://bucket/pre/fix"),
        ("S3://bucket/p?region=eu-west-1", S3Provider, "s3://bucket/p?region=eu-west-1"),
        ("fsspec+memory://a/b", FsspecProvider, "fsspec+memory://a/b"),
        ("fsspec+gs://bucket/p?project=x", FsspecProvider, "fsspec+gs://bucket/p"),
    ],
)
def test_urls(url: str, driver: type, shown: str) -> None:
    provider = opened(url)
    assert type(provider) is driver
    assert provider.url == shown


def test_options_in_the_url_win_over_the_section() -> None:
    provider = opened(
        "s3://b/p?endpoint=http://127.0.0.1:7070&path_style=false&sse=AES256",
        endpoint="https://other",
        region="eu-north-1",
    )
    assert provider.url == "s3://b/p?endpoint=http://127.0.0.1:7070&region=eu-north-1"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "not set"),
        ("/data/archive", "file:///data/archive"),
        ("bucket/prefix", "s3://bucket"),
        ("fiel:///x", "did you mean file://"),
        ("s4://bucket", "did you mean s3://"),
        ("gs://bucket/p", "fsspec+gs://bucket"),
        ("https://bucket/p", "fsspec+gs://"),
        ("file://data/archive", "file:///data/archive"),
        ("file:///", "absolute path"),
        ("file:///a/../b", "dot segments"),
        ("file:///a?mode=x", "unknown option"),
        ("s3:///prefix", "needs a bucket"),
        ("s3://b/p?endpont=http://x", "did you mean endpoint"),
        ("s3://b/p?color=red", "endpoint, region"),
        ("s3://b/p?path_style=maybe", "true or false"),
        ("s3://b/p?sse=rot13", "one of"),
        ("s3://b/p?endpoint=127.0.0.1:9000", "http or https"),
        ("s3://b/p#frag", "fragment"),
        ("s3://b/a//b", "doubled slash"),
        ("s3://b/a/../b", "dot segment"),
        ("s3://[bad/p", "not a valid URL"),
    ],
)
def test_a_wrong_url_is_told_what_is_right(url: str, told: str) -> None:
    assert told in failure(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:hush/hushhush@bucket/p",
        "s3://AKIA:hushhush@bucket/p",
        "s3://b/p?secret_access_key=hushhush",
        "s3://b/p?access_key_id=hushhush",
        "s3://b/p?session_token=hushhush",
        "s3://b/p?endpoint=http://user:hushhush@host",
        "fsspec+az://c/p?account_key=hushhush",
        "fsspec+sftp://user:hushhush@host/p",
        "user:hushhush@host",
        "xx://user:hushhush@host/?password=hushhush",
    ],
)
def test_secrets_in_urls_are_refused_and_not_repeated(url: str) -> None:
    assert "hushhush" not in failure(url)


def test_wrappers_are_stacked_in_the_stated_order() -> None:
    class Deaf:
        def request(
            self, verb: str, outcome: str, bytes_sent: int, bytes_received: int, seconds: float
        ) -> None: ...

    store = Store(max_bytes_per_second=10, max_requests_per_second=10)
    provider = open_provider("memory://order", store, CLOCK, observer=Deaf())
    assert isinstance(provider, Retrying)
    assert isinstance(provider.inner, Metered)
    assert isinstance(provider.inner.inner, Throttled)
    assert isinstance(provider.inner.inner.inner, MemoryProvider)
    assert isinstance(open_provider("memory://order", Store(), CLOCK), Retrying)


def test_a_memory_name_is_one_store_and_no_name_is_a_new_one() -> None:
    opened("memory://shared").put("k", [b"x"])
    assert opened("memory://shared").get("k").data == b"x"
    opened("memory://").put("k", [b"x"])
    assert list(opened("memory://").list("")) == []


def test_a_posix_archive_loads_no_sdk(tmp_path: Path) -> None:
    code = (
        "import sys; from tiered.clock import ManualClock; from tiered.settings import Store\n"
        "from tiered.provider.open import open_provider\n"
        f"from tiered.provider.resolve import create_root\n"
        f"made = open_provider('file://{tmp_path}/a', Store(), ManualClock()); create_root(made); made.put('k', [b'x'])\n"
        "print(sorted({'boto3', 'botocore', 'fsspec', 's3fs'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_opening_makes_no_request_and_a_stop_ends_retries() -> None:
    stop = threading.Event()
    stop.set()
    store = Store(endpoint="http://127.0.0.1:9", access_key_id="a", secret_access_key="b")
    provider = open_provider("s3://bucket/p", store, CLOCK, stop=stop)
    with pytest.raises(Unavailable) as caught:
        provider.head("k")
    assert caught.value.fields["attempts"] == 1
    provider.close()


def test_the_client_gets_every_setting() -> None:
    store = Store(
        region="eu-central-1",
        endpoint="https://s3.example.com",
        path_style=False,
        access_key_id="a",
        secret_access_key="b",
        session_token="c",
        connect_timeout_ms=1500,
        read_timeout_ms=2500,
        max_connections=7,
    )
    client = make_client(store, make_session(store), StoreAnswers())
    config = client.meta.config
    assert (client.meta.region_name, client.meta.endpoint_url) == ("eu-central-1", "https://s3.example.com")
    assert (config.connect_timeout, config.read_timeout, config.max_pool_connections) == (1.5, 2.5, 7)
    assert config.s3["addressing_style"] == "virtual"
    assert config.s3["payload_signing_enabled"] is False
    assert config.retries["total_max_attempts"] == 1
    assert client._request_signer._credentials.token == "c"
    client.close()


def test_a_profile_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(Invalid) as caught:
        opened("s3://b/p?profile=absent").head("k")
    assert "store.profile" in str(caught.value)


def test_a_profile_of_the_shared_file_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text(
        "[archive]\naws_access_key_id = FROMPROFILE\naws_secret_access_key = s\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    profiled = Store(profile="archive", region="us-east-1")
    client = make_client(profiled, make_session(profiled), StoreAnswers())
    assert client._request_signer._credentials.access_key == "FROMPROFILE"
    client.close()


def test_no_credentials_at_all_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(Denied) as caught:
        opened("s3://b/p?endpoint=http://127.0.0.1:9").head("k")
    assert "no usable credentials" in str(caught.value)


def test_a_missing_certificate_file_is_told() -> None:
    store = {"access_key_id": "a", "secret_access_key": "b", "ca_bundle": "/nowhere/ca.pem"}
    with pytest.raises(Invalid) as caught:
        opened("s3://b/p?endpoint=https://127.0.0.1:9", **store).head("k")
    assert "store.ca_bundle" in str(caught.value)


def test_fsspec_says_what_to_install_and_what_it_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    with pytest.raises(Invalid) as caught:
        opened("fsspec+nosuch://b/p").head("k")
    assert "install" in str(caught.value)
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    with pytest.raises(Invalid, match=r"store\.ca_bundle"):
        s3_options(Store(ca_bundle="/nowhere/ca.pem", **keys), "")
    options = s3_options(Store(region="r", endpoint="http://e", sse="AES256", **keys), "")
    assert (options["endpoint_url"], options["client_kwargs"]) == ("http://e", {"region_name": "r"})
    assert options["s3_additional_kwargs"] == {"ServerSideEncryption": "AES256"}
    assert options["config_kwargs"]["retries"] == {"total_max_attempts": 1}


@pytest.mark.parametrize("engine", ["direct", "boto3", "s3fs"])
@pytest.mark.parametrize("where", ["config", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "HTTP_PROXY"])
def test_every_request_goes_where_the_sdk_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, engine: str
) -> None:
    with FakeS3().running() as fake:
        config = f"endpoint_url = {fake.endpoint}\n" if where == "config" else ""
        (tmp_path / "config").write_text(f"[default]\nregion = us-east-1\n{config}")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        if where != "config":
            monkeypatch.setenv(where, fake.endpoint)
        endpoint = "http://store.invalid" if where == "HTTP_PROXY" else ""
        store = replace(
            fake.store(engine=engine.replace("s3fs", "direct")), endpoint=endpoint, region="", attempts=1
        )
        url = "s3://bucket/p" if engine != "s3fs" else "fsspec+s3://bucket/p"
        provider = open_driver(url, store, CLOCK)
        provider.put("k", [b"0123456789"])
        assert provider.head("k").length == 10
        assert provider.get("k").data == b"0123456789"
        assert provider.get("k", 2, 3).data == b"234"
        assert provider.get("k", -3).data == b"789"
        assert [found.key for found in provider.list("")] == ["k"]
        provider.delete("k")
        provider.close()
        verbs = [request.verb for request in fake.asked]
        once = ["put", "head", "get", "range", "range", "list", "delete"]
        assert [verb for verb in once if verb not in verbs] == [] if engine == "s3fs" else verbs == once
        assert {request.key for request in fake.asked} <= {"", "p/k"}


@pytest.mark.parametrize("url", ["s3://bucket/p", "fsspec+s3://bucket/p"])
def test_without_an_endpoint_of_its_own_nothing_is_asked_but_aws(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str
) -> None:
    """By a proxy that sees every name that is asked for."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    asked = list[str]()
    with peer(lambda at: asked.append(at.recv(4096).decode().split("\r\n")[0])) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy}")
        provider = open_driver(
            url, Store(region="eu-west-1", access_key_id="a", secret_access_key="b"), CLOCK
        )
        with pytest.raises(Unavailable):
            provider.get("k", 0, 3)
        provider.close()
    assert asked
    assert {line.split()[1] for line in asked} == {"s3.eu-west-1.amazonaws.com:443"}


@pytest.mark.parametrize(
    ("endpoint", "asked", "sent"),
    [
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000/b/k", True),
        ("https://s3.example.com", "https://bucket.s3.example.com/k", True),
        ("https://s3.example.com", "https://s3.amazonaws.com/b/k", False),
        ("https://s3.example.com", "https://evil-s3.example.com/b/k", False),
        ("https://s3.amazonaws.com", "https://b.s3.eu-west-1.amazonaws.com/k", True),
        ("https://s3.amazonaws.com", "https://notamazonaws.com/k", False),
    ],
)
def test_a_request_for_another_host_is_not_sent(endpoint: str, asked: str, sent: bool) -> None:
    look = sends_only_to(endpoint)
    if sent:
        look(request=AWSRequest("GET", asked))
        return
    with pytest.raises(ValueError, match="not sent"):
        look(request=AWSRequest("GET", asked))


@pytest.mark.parametrize("where", ["config", "AWS_ENDPOINT_URL_S3", "nowhere"])
def test_a_url_for_other_machines_names_the_endpoint_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    named = "endpoint_url = http://minio:9000\n" if where == "config" else ""
    (tmp_path / "config").write_text(f"[default]\nregion = eu-west-1\n{named}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    if where.startswith("AWS"):
        monkeypatch.setenv(where, "http://minio:9000")
    more = "endpoint=http://minio:9000&region=eu-west-1"
    found = [located(url, Store()) for url in ("s3://b/p", "fsspec+s3://b/p?path_style=false")]
    if where == "nowhere":
        assert found == ["s3://b/p", "fsspec+s3://b/p?path_style=false"]
    else:
        assert found == [f"s3://b/p?{more}", f"fsspec+s3://b/p?path_style=false&{more}"]
    for same in ("s3://b/p?endpoint=http://other", "file:///x", "memory://x", "gs://b"):
        assert located(same, Store()) == same


@pytest.mark.parametrize("url", ["s3://bucket/p?engine=boto3", "fsspec+s3://bucket/p"])
def test_every_engine_asks_the_guard_before_it_sends(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr("tiered.provider.s3client.sends_only_to", lambda _: sends_only_to("http://elsewhere"))
    with FakeS3().running() as fake:
        provider = open_driver(url, fake.store(), CLOCK)
        with pytest.raises(TieredError):
            provider.get("k", 0, 3)
        provider.close()
    assert not fake.asked


def test_an_engine_of_older_versions_is_the_short_way() -> None:
    provider = S3Provider(
        "bucket", "p", Store(engine="obstore", region="r", access_key_id="a", secret_access_key="b"), CLOCK
    )
    provider._connected()
    assert provider._direct is not None
