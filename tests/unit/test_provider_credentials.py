"""Credentials that come late, or are written anew: they are taken when the store refuses the old ones, by either engine."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from tests.kit.fakes3 import Answer, FakeS3, Request, error, xml
from tiered.clock import ManualClock
from tiered.errors import Denied, Unavailable
from tiered.provider.base import Provider
from tiered.provider.fsspec import FsspecProvider
from tiered.provider.s3 import RENEW_SECONDS, S3Provider
from tiered.provider.wrap import Retrying


class Keys:
    """A credentials file, and a store that knows one access key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.valid = "OLDKEY"
        self.seen: list[str] = []

    def write(self, key: str) -> None:
        self.path.write_text(
            f"[default]\naws_access_key_id = {key}\naws_secret_access_key = s\naws_session_token = t\n"
        )

    def bend(self, request: Request, act: Callable[[], Answer]) -> Answer:
        key = request.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]
        self.seen.append(key)
        if key == self.valid:
            return act()
        refused = error(403, "ExpiredToken", "The provided token has expired.")
        return Answer(403) if request.method == "HEAD" else refused


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keys:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return Keys(tmp_path / "credentials")


@contextmanager
def opened(engine: str, keys: Keys, clock: ManualClock) -> Iterator[Retrying]:
    with FakeS3(clock, keys.bend).running() as server:
        store = server.store(
            access_key_id="", secret_access_key="", engine="boto3" if engine == "boto3" else "direct"
        )
        driver = S3Provider("bucket", "root", store, clock)
        yield Retrying(driver, clock, random.Random(7), attempts=3, base_ms=1, max_ms=1)
        driver.close()


@pytest.mark.parametrize("engine", ["direct", "boto3"])
@pytest.mark.parametrize("verb", ["put", "get", "head"])
def test_what_is_refused_is_signed_with_what_the_file_has_now(keys: Keys, engine: str, verb: str) -> None:
    clock = ManualClock()
    keys.write("OLDKEY")
    with opened(engine, keys, clock) as provider:
        provider.put("k", [b"0123456789"])
        assert provider.get("k", 2, 3).data == b"234"
        keys.valid = "NEWKEY"
        with pytest.raises(Denied, match="403"):
            provider.head("k")
        keys.write("NEWKEY")
        clock.advance(RENEW_SECONDS)
        if verb == "put":
            provider.put("other", [b"x"])
        elif verb == "head":
            assert provider.head("k").length == 10
        else:
            assert provider.get("k", 2, 3).data == b"234"
        del keys.seen[:]
        assert provider.get("k", 3, 2).data == b"34"
        assert keys.seen == ["NEWKEY"], "the engine for ranges has them, too"


@pytest.mark.parametrize("engine", ["direct", "boto3"])
def test_credentials_that_are_not_there_yet_are_looked_for_again(keys: Keys, engine: str) -> None:
    with opened(engine, keys, ManualClock()) as provider:
        with pytest.raises(Denied, match="no usable credentials"):
            provider.get("k", 0, 3)
        keys.write("OLDKEY")
        provider.put("k", [b"abc"])
        assert provider.get("k", 0, 3).data == b"abc"


def test_the_file_is_not_read_at_every_refusal(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looks = ManualClock(), list[int]()
    keys.write("STRANGER")
    with opened("direct", keys, clock) as provider:
        with pytest.raises(Denied):
            provider.head("k")
        from tiered.provider import s3

        made = s3.make_session
        monkeypatch.setattr(s3, "make_session", lambda store: looks.append(1) or made(store))
        for _ in range(5):
            with pytest.raises(Denied):
                provider.head("k")
        assert not looks
        clock.advance(RENEW_SECONDS)
        keys.write("ANOTHER")
        with pytest.raises(Unavailable):  # those that it found are refused, too
            provider.head("k")
        assert looks == [1]


class FakeSts:
    """A token service: gives the access key that a web identity's token names, and says what it was asked."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

    def bend(self, request: Request, act: Callable[[], Answer]) -> Answer:
        form = dict(parse_qsl(request.body.decode()))
        assert form["Action"] == "AssumeRoleWithWebIdentity"
        token = form["WebIdentityToken"].strip()
        self.tokens.append(token)
        kept = (
            f"<AccessKeyId>{token.removesuffix('-token')}KEY</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
            "<Expiration>2999-01-01T00:00:00Z</Expiration>"
        )
        name = "AssumeRoleWithWebIdentity"
        return xml(
            f"<{name}Response><{name}Result><Credentials>{kept}</Credentials></{name}Result></{name}Response>"
        )


@pytest.mark.parametrize("engine", ["direct", "boto3", "s3fs"])
def test_a_token_of_a_web_identity_that_rotates_is_exchanged_anew(
    keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    clock, sts, token = ManualClock(), FakeSts(), tmp_path / "token"
    token.write_text("OLD-token")
    with FakeS3(bend=sts.bend).running() as service, FakeS3(clock, keys.bend).running() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", service.endpoint)
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/archive")
        store = server.store(
            access_key_id="", secret_access_key="", engine="boto3" if engine == "boto3" else "direct"
        )
        driver: Provider = (
            FsspecProvider("s3", "bucket/root", {}, store, clock)
            if engine == "s3fs"
            else S3Provider("bucket", "root", store, clock)
        )
        provider = Retrying(driver, clock, random.Random(7), attempts=3, base_ms=1, max_ms=1)
        provider.put("k", [b"0123456789"])
        assert provider.get("k", 2, 3).data == b"234"
        assert (set(keys.seen), sts.tokens) == ({"OLDKEY"}, ["OLD-token"])
        token.write_text("NEW-token")
        keys.valid = "NEWKEY"  # the store says ExpiredToken to the old one
        clock.advance(60)
        if engine == "s3fs":  # its file system is opened anew for the next request
            with pytest.raises(Denied):
                provider.put("other", [b"x"])
        provider.put("other", [b"x"])
        del keys.seen[:]
        assert provider.get("k", 3, 2).data == b"34"
        assert (keys.seen, sts.tokens) == (["NEWKEY"], ["OLD-token", "NEW-token"])
        driver.close()
