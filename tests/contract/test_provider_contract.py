"""The provider port's contract, over every driver: what ``provider/base.py`` promises must hold for all of them."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kit.s3server import S3Server, versitygw
from tiered.clock import SystemClock
from tiered.errors import Conflict, Invalid, NotFound
from tiered.provider import s3, wrap
from tiered.provider.base import Provider
from tiered.provider.open import open_provider
from tiered.provider.probe import probe
from tiered.provider.resolve import create_root
from tiered.settings import MIB, Store

MOTO = ("moto", "moto-boto3")
DRIVERS = [
    "memory",
    "posix",
    *(pytest.param(name, marks=pytest.mark.moto) for name in MOTO),
    pytest.param("versitygw", marks=pytest.mark.s3server),
    pytest.param("versitygw-boto3", marks=pytest.mark.s3server),
    "fsspec-local",
    "fsspec-memory",
    pytest.param("fsspec-s3fs", marks=pytest.mark.s3server),
    "rooted",
]
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest) -> Iterator[Callable[[str], S3Server]]:
    """Servers by name, started when first asked for."""
    running: dict[str, S3Server] = {}
    with ExitStack() as stack:

        def get(name: str) -> S3Server:
            if name not in running:
                shared = name == "moto"
                running[name] = (
                    request.getfixturevalue("moto") if shared else stack.enter_context(versitygw())
                )
            return running[name]

        yield get


@pytest.fixture(params=DRIVERS)
def provider(
    request: pytest.FixtureRequest, servers: Callable[[str], S3Server], tmp_path: Path
) -> Iterator[Provider]:
    """A wrapped provider over an empty place."""
    kind = request.param
    opened: Provider
    if kind == "memory":
        opened = open_provider(f"memory://{uuid.uuid4()}", Store(), CLOCK)
    elif kind == "posix":
        opened = open_provider(f"file://{tmp_path}/archive", Store(), CLOCK)
    elif kind == "rooted":
        (tmp_path / "archive" / "a cluster").mkdir(parents=True)
        opened = open_provider(f"file://{tmp_path}/archive/a%20cluster/broker-a", Store(), CLOCK)
    elif kind == "fsspec-local":
        opened = open_provider(f"fsspec+file://{tmp_path}/archive", Store(), CLOCK)
    elif kind == "fsspec-memory":
        opened = open_provider(f"fsspec+memory://{uuid.uuid4()}/root", Store(), CLOCK)
    else:
        server = servers("versitygw" if kind == "fsspec-s3fs" else kind.removesuffix("-boto3"))
        url = server.url(server.bucket(), "some/root")
        engine = "boto3" if kind.endswith("-boto3") else "direct"
        opened = open_provider(
            f"fsspec+{url}" if kind == "fsspec-s3fs" else url,
            server.store(multipart_bytes=5 * MIB, engine=engine),
            CLOCK,
        )
    create_root(opened)
    yield opened
    opened.close()


def test_put_then_get_gives_the_same_bytes(provider: Provider) -> None:
    parts = [b"one", bytearray(b" two"), memoryview(b" three!")[:6], b""]
    stored = provider.put("data/0000000001-x", parts)
    assert (stored.key, stored.length) == ("data/0000000001-x", 13)
    assert abs(stored.date_ms - CLOCK.now_ms()) < 60_000
    fetched = provider.get("data/0000000001-x")
    assert fetched.data == b"one two three"
    assert fetched.object_length in (13, None)


def test_an_empty_object_exists(provider: Provider) -> None:
    provider.put("data/empty", [])
    assert provider.get("data/empty").data == b""
    assert provider.get("data/empty", -100).data == b""
    assert provider.get("data/empty", 0, 10).data == b""
    assert provider.head("data/empty").length == 0
    with pytest.raises(Conflict):
        provider.put("data/empty", [])


def test_create_only_refuses_an_existing_key_and_keeps_its_bytes(provider: Provider) -> None:
    provider.put("commit/00/1", [b"first"])
    with pytest.raises(Conflict):
        provider.put("commit/00/1", [b"second"])
    assert provider.get("commit/00/1").data == b"first"
    provider.delete("commit/00/1")
    provider.put("commit/00/1", [b"third"])
    assert provider.get("commit/00/1").data == b"third"


def test_many_keys_are_deleted_at_once_and_missing_ones_are_gone(provider: Provider) -> None:
    keys = [f"data/{n}" for n in range(12)]
    for key in keys:
        provider.put(key, [b"x"])
    assert provider.capabilities.delete_keys >= 1
    assert provider.delete_many([*keys[:9], "data/never"]) == {}
    assert [s.key for s in provider.list("data/")] == sorted(keys[9:])
    assert provider.delete_many(keys) == {}
    assert list(provider.list("data/")) == []


def test_without_create_only_the_object_is_replaced(provider: Provider) -> None:
    provider.put("a/b", [b"first, and longer"], create_only=False)
    provider.put("a/b", [b"second"], create_only=False)
    assert provider.get("a/b").data == b"second"
    assert provider.head("a/b").length == 6


def test_ranges(provider: Provider) -> None:
    data = bytes(range(256)) * 8
    provider.put("r/1", [data[:1000], data[1000:]])
    for start, length, wanted in [
        (0, 10, data[:10]),
        (0, None, data),
        (None, 5, data[:5]),
        (100, 50, data[100:150]),
        (2000, None, data[2000:]),
        (2040, 100, data[2040:]),
        (-7, None, data[-7:]),
        (-5000, None, data),
        (-2048, None, data),
        (len(data), 10, b""),
        (len(data) + 50, None, b""),
        (len(data) + 50, 10, b""),
        (20, 0, b""),
        (0, 0, b""),
    ]:
        fetched = provider.get("r/1", start, length)
        assert fetched.data == wanted, (start, length)
        assert fetched.object_length in (len(data), None)
        assert abs(fetched.date_ms - CLOCK.now_ms()) < 60_000


@pytest.mark.parametrize(("start", "length"), [(0, -1), (-5, 5)])
def test_a_senseless_range_is_invalid(provider: Provider, start: int, length: int) -> None:
    with pytest.raises(Invalid):
        provider.get("r/1", start, length)


def test_an_absent_object_is_not_found(provider: Provider) -> None:
    provider.put("there/x", [b"1"])
    for key in ("there/y", "nowhere/at/all", "there"):
        with pytest.raises(NotFound):
            provider.get(key)
        with pytest.raises(NotFound):
            provider.get(key, -10)
        with pytest.raises(NotFound):
            provider.get(key, 0, 0)
        with pytest.raises(NotFound):
            provider.head(key)


def test_head_tells_length_and_times(provider: Provider) -> None:
    provider.put("h/1", [b"x" * 1234])
    found = provider.head("h/1")
    assert (found.key, found.length) == ("h/1", 1234)
    assert abs(found.last_modified_ms - found.date_ms) < 60_000
    assert abs(found.date_ms - CLOCK.now_ms()) < 60_000


def test_deleting_is_idempotent(provider: Provider) -> None:
    provider.put("d/1", [b"x"])
    provider.delete("d/1")
    provider.delete("d/1")
    provider.delete("never/was")
    with pytest.raises(NotFound):
        provider.head("d/1")
    assert list(provider.list("d/")) == []


def test_listing_is_in_byte_order_and_resumes(provider: Provider) -> None:
    keys = ["l/a", "l/a-b", "l/a.b/c", "l/ab/c", "l/ab/d/e", "l/B", "l/b c%20+", "l/é", "l/日本", "m/x", "l0"]
    for number, key in enumerate(keys):
        provider.put(key, [b"x" * number])
    inside = sorted((key for key in keys if key.startswith("l/")), key=str.encode)
    assert [stored.key for stored in provider.list("l/")] == inside
    assert [stored.key for stored in provider.list("")] == sorted(keys, key=str.encode)
    assert {stored.key: stored.length for stored in provider.list("")} == {
        key: n for n, key in enumerate(keys)
    }
    assert [stored.key for stored in provider.list("l/a")] == [key for key in inside if key.startswith("l/a")]
    assert [stored.key for stored in provider.list("l/ab/d")] == ["l/ab/d/e"]
    for at in range(len(inside)):
        assert [stored.key for stored in provider.list("l/", start_after=inside[at])] == inside[at + 1 :]
    assert [stored.key for stored in provider.list("l/", start_after="l/ab/cc", limit=2)] == inside[
        inside.index("l/ab/d/e") :
    ][:2]
    assert list(provider.list("l/", limit=0)) == []
    assert list(provider.list("zzz/")) == []
    assert list(provider.list("m/x/deeper")) == []


def test_listing_goes_over_pages(
    provider: Provider, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    page_keys = s3.PAGE_KEYS
    if request.node.get_closest_marker("s3server") is None:
        page_keys = 100  # the real server alone is asked for whole pages: moto is slow, and the others have none but the wrap's
        monkeypatch.setattr(s3, "PAGE_KEYS", page_keys)
        monkeypatch.setattr(wrap, "PAGE_KEYS", page_keys)
    keys = [f"p/{number:020d}" for number in range(page_keys + 203)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda key: provider.put(key, [b"x"]), keys))
    assert [stored.key for stored in provider.list("p/")] == keys
    listed = provider.list("p/", start_after=keys[99], limit=page_keys + 50)
    assert [stored.key for stored in listed] == keys[100 : page_keys + 150]


IMPOSSIBLE = (
    "",
    "/a",
    "a/",
    "a//b",
    "a/./b",
    "..",
    "a/../b",
    "x" * 101,
    "é" * 51,
    "a\0b",
    "\ud800",
    ".tiered-tmp-1",
)


def test_a_key_that_not_every_store_can_hold_is_invalid(provider: Provider) -> None:
    put: Callable[[str], object] = lambda key: provider.put(key, [b"x"])  # noqa: E731
    for verb, key in itertools.product((put, provider.get, provider.head, provider.delete), IMPOSSIBLE):
        with pytest.raises(Invalid):
            verb(key)
            pytest.fail(f"{verb} took {key!r}")


def test_keys_at_the_limits_are_held(provider: Provider) -> None:
    for key in (
        "x" * 100,
        "é" * 50,
        "a/" + "y" * 100 + "/z",
        "per%2Fcent/sp ace+plus&amp=~'()*!",
        ".hidden/..three",
    ):
        provider.put(key, [key.encode()])
        assert provider.get(key).data == key.encode()
        assert [stored.key for stored in provider.list(key)] == [key]


def test_a_body_above_the_part_size_appears_whole(provider: Provider) -> None:
    blocks = [bytes([number]) * 700_001 for number in range(20)]  # 14 MB: three parts of 5 MiB
    data = b"".join(blocks)
    assert provider.put("big/1", blocks).length == len(data)
    assert provider.get("big/1").data == data
    assert provider.get("big/1", -1_000_000).data == data[-1_000_000:]
    with pytest.raises(Conflict):
        provider.put("big/1", blocks[::-1])
    assert provider.get("big/1", 0, 1_000_000).data == data[:1_000_000]


def one_at_a_time(request: pytest.FixtureRequest) -> bool:
    """moto looks whether a key is there and then writes it: in a race several may win. It is no store for anybody's archive."""
    return not request.node.callspec.id.startswith("moto")


def test_one_of_many_racers_wins(provider: Provider, request: pytest.FixtureRequest) -> None:
    if not provider.capabilities.create_only:
        assert probe(provider, CLOCK).refuted, "a driver without create-only must say so to the probe"
        return
    racers = 16
    for size in (64, 300_000):
        start = threading.Barrier(racers)

        def race(number: int, size: int = size, start: threading.Barrier = start) -> bool:
            start.wait()
            try:
                provider.put(f"race/{size}", [bytes([number]) * size])
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(racers) as pool:
            won = list(pool.map(race, range(racers)))
        assert won.count(True) == 1 or (any(won) and not one_at_a_time(request))
        assert provider.get(f"race/{size}").data in [bytes([n]) * size for n in range(racers) if won[n]]


def test_the_probe_cannot_refute_what_the_driver_promises(
    provider: Provider, request: pytest.FixtureRequest
) -> None:
    report = probe(provider, CLOCK, prefix="c/b/")
    promised = provider.capabilities.create_only
    refuted = [finding.capability for finding in report.refuted]
    if not one_at_a_time(request) and "create-only under a race" in refuted:
        refuted.remove("create-only under a race")
    assert refuted == ([] if promised else ["create-only"])
    assert abs(report.clock_offset_ms) < 60_000
    assert list(provider.list("")) == [], "the probe cleans up"


def test_after_close_every_verb_is_an_error(provider: Provider) -> None:
    provider.put("c/1", [b"x"])
    provider.close()
    for verb in (
        lambda: provider.get("c/1"),
        lambda: provider.put("c/2", [b"x"]),
        lambda: list(provider.list("")),
    ):
        with pytest.raises(Invalid):
            verb()


def test_the_url_holds_no_secret(provider: Provider) -> None:
    assert "test-secret" not in provider.url
    assert "test-access" not in provider.url
    assert "://" in provider.url
