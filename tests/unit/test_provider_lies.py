"""Every verb of the S3 driver against every lie of the kit: what is believed is the store's, and all else is *unknown*."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.kit import s3lies
from tests.kit.fakes3 import Answer, FakeS3, Request, error, xml
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.identity import ArchiveIdentity, read_identity
from tiered.clock import ManualClock
from tiered.errors import Conflict, Corrupt, Denied, Invalid, NotFound, Refused, Unavailable
from tiered.provider import probe as probing
from tiered.provider import s3answers
from tiered.provider.base import Fetched, Provider
from tiered.provider.memory import MemoryProvider
from tiered.provider.probe import probe, require_promises
from tiered.provider.resolve import put_own
from tiered.provider.s3 import S3Provider
from tiered.provider.s3answers import ForeignAnswer, StoreAnswers, of_range, require_progress
from tiered.provider.wrap import Retrying, Wrapped
from tiered.settings import MIB

BODY = bytes(range(256)) * 40
LARGE = b"x" * (6 * MIB)


@pytest.fixture(scope="module")
def server() -> Iterator[FakeS3]:
    with FakeS3().running() as running:
        yield running


@pytest.fixture
def fake(server: FakeS3) -> Iterator[FakeS3]:
    for found in list(server.objects.list("")):
        server.objects.delete(found.key)
    server.objects.put("root/there", [BODY])
    yield server
    server.bend = None


@pytest.fixture(params=["direct", "boto3"])
def s3(fake: FakeS3, request: pytest.FixtureRequest) -> Iterator[S3Provider]:
    store = fake.store(multipart_bytes=5 * MIB, engine=request.param)
    provider = S3Provider("bucket", "root", store, ManualClock())
    yield provider
    provider.close()


def there(fake: FakeS3, key: str, body: bytes | None) -> bool:
    try:
        return bool(fake.objects.get(f"root/{key}").data == body)
    except NotFound:
        return body is None


Ask = Callable[[S3Provider, FakeS3], bool]

VERBS: dict[str, Ask] = {
    "put": lambda s3, fake: bool(s3.put("new", [BODY])) and there(fake, "new", BODY),
    "put in parts": lambda s3, fake: bool(s3.put("new", [LARGE])) and there(fake, "new", LARGE),
    "head": lambda s3, _: s3.head("there").length == len(BODY),
    "get": lambda s3, _: s3.get("there").data == BODY,
    "range": lambda s3, _: s3.get("there", 100, 50).data == BODY[100:150],
    "range of all": lambda s3, _: s3.get("there", 0, len(BODY)).data == BODY,
    "range over the end": lambda s3, _: s3.get("there", 10_000, 9999).data == BODY[10_000:],
    "last bytes": lambda s3, _: s3.get("there", -50).data == BODY[-50:],
    "delete": lambda s3, fake: s3.delete("there") is None and there(fake, "there", None),
    "delete many": lambda s3, fake: not s3.delete_many(["there", "other"]) and there(fake, "there", None),
    "list": lambda s3, _: [found.key for found in s3.list("")] == ["there"],
}
"""Ask, and say whether what was answered is so."""

NOT_SEEN = {
    ("swallowed", "head"): "nothing is built on the length alone",
    ("swallowed", "put"): "archives read back before the hold lets go",
    ("swallowed", "delete"): "deletions look again",
    ("short", "head"): "nothing is built on the length alone",
    ("wrong length", "head"): "nothing is built on the length alone",
    ("empty listing", "list"): "what is not listed is asked for before it counts as gone",
}
"""What no answer can show, and who sees it."""


def answered(ask: Ask, s3: S3Provider, fake: FakeS3) -> str:
    try:
        return "right" if ask(s3, fake) else "wrong"
    except Denied:
        return "denied"
    except Unavailable:
        return "unknown"
    except Invalid as error:
        return "refused" if error.hint else "wrong"


@pytest.mark.parametrize("lie", s3lies.LIES)
def test_what_is_answered_is_so_or_unknown(fake: FakeS3, s3: S3Provider, lie: str) -> None:
    s3.delete("probe/1")  # as the probe does: the store shows what its answers look like
    believed = []
    told = s3lies.told_to((), s3lies.LIES[lie])
    for verb, ask in VERBS.items():
        fake.objects.delete("root/new")
        fake.objects.put("root/there", [BODY], create_only=False)
        with fake.bent(told):
            said = answered(ask, s3, fake)
        if (said == "wrong") != ((lie, verb) in NOT_SEEN):
            believed.append(f"{verb}: {said}")
            if lie.startswith("403"):
                assert said == "denied", verb
            if lie in ("301", "307"):
                assert said == "unknown", (
                    f"{verb}: who moves it elsewhere and shows no error of S3 is not the store"
                )
    assert not believed


def test_a_truth_in_another_form_is_taken(fake: FakeS3, s3: S3Provider) -> None:
    for lie in ("range ignored", "200 for a range, bare", "200 for a range"):
        with fake.bent(s3lies.LIES[lie]):
            for verb in ("range", "range of all", "range over the end", "last bytes"):
                assert VERBS[verb](s3, fake), (lie, verb)


@pytest.mark.parametrize("name", ["no ETag, no id", "200 HTML, done", "HTTP/1.0"])
def test_a_put_without_proof_is_read_back(fake: FakeS3, s3: S3Provider, name: str) -> None:
    provider = Retrying(s3, ManualClock(), random.Random(7), attempts=3, base_ms=1, max_ms=1)
    with fake.bent(s3lies.told_to(["put"], s3lies.LIES[name])):
        assert put_own(provider, "new", [BODY]).length == len(BODY)
    assert there(fake, "new", BODY)


class Altered(Wrapped):
    """A proxy between a sound store and its reader: what ``alter`` makes of the bytes that come, at each read."""

    def __init__(self, inner: Provider, alter: Callable[[bytes, int], bytes]) -> None:
        super().__init__(inner)
        self.reads = 0
        self._alter = alter

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        found = self.inner.get(key, start, length)
        self.reads += 1
        return replace(found, data=self._alter(bytes(found.data), self.reads))


def test_what_a_liar_reads_back_is_no_conflict() -> None:
    memory = MemoryProvider("", ManualClock())
    memory.put("k", [BODY])
    alters: dict[str, Callable[[bytes, int], bytes]] = {
        "short": lambda data, _: data[: len(data) // 2],
        "other bytes each time": lambda data, read: bytes([read]) * len(data),
    }
    for name, alter in alters.items():
        bent = Altered(memory, alter)
        with pytest.raises(Unavailable, match="not what was put"):
            put_own(bent, "k", [BODY])
        assert 4 <= bent.reads <= 8, name
    assert put_own(Altered(memory, lambda data, read: data[read == 1 :]), "k", [BODY]).length == len(BODY)
    with pytest.raises(Conflict, match="ours alone"):
        put_own(memory, "k", [BODY[::-1]])


def test_an_absence_with_the_status_of_a_success_is_no_object(fake: FakeS3, s3: S3Provider) -> None:
    with fake.bent(s3lies.bare_range), pytest.raises(Unavailable, match="not the store"):
        s3.get("absent")
    with pytest.raises(NotFound):
        s3.get("absent")


def test_an_identity_that_comes_short_is_no_damage_and_one_that_is_short_is(
    fake: FakeS3, s3: S3Provider
) -> None:
    keys = ArchiveKeys("c", "b")
    whole = ArchiveIdentity(b"i" * 16, "c", "b", 1).encode()
    s3.put(keys.identity, [whole])
    with fake.bent(s3lies.short), pytest.raises(Unavailable, match="not the store"):
        read_identity(s3, keys)
    assert read_identity(s3, keys).archive_id == b"i" * 16
    for left in (len(whole) // 2, 0):
        s3.put(keys.identity, [whole[:left]], create_only=False)
        with pytest.raises(Corrupt):
            read_identity(s3, keys)


def nothing_known(request: Request, act: Callable[[], Answer]) -> Answer:
    """200 and something, as a whole object with an ETag and a request id."""
    return Answer(200, {**NAMED, "ETag": '"1"'}, b'{"please": "log in"}')


@pytest.mark.parametrize("lie", [nothing_known, s3lies.swallowed, s3lies.page], ids=lambda lie: lie.__name__)
@pytest.mark.parametrize("verbs", [(), ("get", "range", "head")], ids=["all", "reads"])
def test_an_identity_of_somebody_else_is_no_damage(
    fake: FakeS3, s3: S3Provider, lie: s3lies.Bend, verbs: tuple[str, ...]
) -> None:
    keys = ArchiveKeys("c", "b")
    s3.put(keys.identity, [ArchiveIdentity(b"i" * 16, "c", "b", 1).encode()])
    with fake.bent(s3lies.told_to(verbs, lie)), pytest.raises(Unavailable):
        read_identity(s3, keys)


def test_no_bytes_are_an_object_if_the_listing_says_so(fake: FakeS3, s3: S3Provider) -> None:
    fake.objects.put("root/empty", [b""])
    for lie in (None, s3lies.whole):  # a store that counts, and one that does not know of ranges
        fake.bend = lie
        assert s3.get("empty").data == b"" == s3.get("empty", 0, 100).data, lie
    fake.bend = s3lies.told_to(["get", "range", "head"], s3lies.swallowed)
    for start, length in ((None, None), (0, 10), (5, 10), (-5, None)):
        with pytest.raises(Unavailable, match=f"0 bytes, where the listing has {len(BODY)}"):
            s3.get("there", start, length)
        with pytest.raises(Unavailable, match="0 bytes, where the listing has no such object"):
            s3.get("the", start, length)


def test_who_counted_all_that_came_is_not_believed_without(fake: FakeS3, s3: S3Provider) -> None:
    for _ in range(2):
        with fake.bent(s3lies.whole):
            assert s3.get("there").data == BODY
        assert s3.get("there").data == BODY
    with fake.bent(s3lies.told_to(["get"], nothing_known)), pytest.raises(Unavailable, match="listing"):
        s3.get("there")


def test_a_range_that_is_there_is_not_said_to_be_none(fake: FakeS3, s3: S3Provider) -> None:
    def bend(request: Request, act: Callable[[], Answer]) -> Answer:
        told = error(416, "InvalidRange")
        return replace(told, headers={**told.headers, "Content-Range": f"bytes */{len(BODY)}"})

    with fake.bent(bend):
        for start, length in ((None, None), (0, 10), (len(BODY) - 1, 10), (-5, None)):
            with pytest.raises(Unavailable, match="no bytes from"):
                s3.get("there", start, length)
        assert s3.get("there", len(BODY), 10).data == b""


def test_the_probe_notices_a_store_that_proves_no_put(fake: FakeS3, s3: S3Provider) -> None:
    provider = Retrying(s3, ManualClock(), random.Random(7), attempts=3, base_ms=1, max_ms=1)
    with fake.bent(s3lies.told_to(["put"], s3lies.bare)):
        report = probe(provider, ManualClock())
    assert not report.refuted, "it is slow, and nothing is lost"
    unproven = [finding for finding in report.findings if not finding.held]
    assert [finding.capability for finding in unproven] == ["proven puts"]
    assert "read back" in unproven[0].unprotected


def test_the_probe_notices_a_store_that_deletes_nothing(fake: FakeS3, s3: S3Provider) -> None:
    with fake.bent(s3lies.told_to(["delete"], s3lies.swallowed)):
        report = probe(s3, ManualClock())
    assert [
        (each.capability, "lock or retention" in each.detail) for each in report.findings if not each.held
    ] == [("deleting", True)]


def test_a_page_is_told_as_what_it_is(fake: FakeS3, s3: S3Provider) -> None:
    with fake.bent(s3lies.page), pytest.raises(Unavailable, match="not the store") as caught:
        s3.put("new", [BODY])
    assert "unknown whether the put happened" in str(caught.value)
    assert "portal" in str(caught.value)


def test_a_listing_that_does_not_get_on_ends(fake: FakeS3, s3: S3Provider) -> None:
    row = "<Contents><Key>root/a</Key><Size>1</Size></Contents><IsTruncated>true</IsTruncated>"
    again = "<NextContinuationToken>t</NextContinuationToken>"
    for page in (row, row + again, row.replace("root/", "other/").replace("true", "false")):

        def bend(request: Request, act: Callable[[], Answer], page: str = page) -> Answer:
            return xml(f"<ListBucketResult>{page}</ListBucketResult>")

        with fake.bent(bend), pytest.raises(Unavailable):
            list(s3.list(""))


@pytest.mark.parametrize("most", [None, 5000])
def test_a_listing_that_begins_again_at_every_page_ends(
    fake: FakeS3, s3: S3Provider, most: int | None
) -> None:
    """It heeds neither its tokens, which are new each time, nor where it was asked to begin."""
    provider = Retrying(s3, ManualClock(), random.Random(7), attempts=3, base_ms=1, max_ms=1)
    rows = "".join(f"<Contents><Key>root/{key}</Key><Size>1</Size></Contents>" for key in "abc")
    before = len(fake.asked)

    def bend(request: Request, act: Callable[[], Answer]) -> Answer:
        token = f"<NextContinuationToken>{len(fake.asked)}</NextContinuationToken>"
        return xml(f"<ListBucketResult>{rows}<IsTruncated>true</IsTruncated>{token}</ListBucketResult>")

    with fake.bent(bend), pytest.raises(Unavailable, match="the same page"):
        list(provider.list("", limit=most))
    assert len(fake.asked) - before == 6


@pytest.mark.parametrize("shown", ["", "ab", "ba"])
def test_a_listing_with_ever_new_tokens_ends(
    fake: FakeS3, s3: S3Provider, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    """Pages without keys for ever, or pages that take turns; also of uploads."""
    monkeypatch.setattr(s3answers, "MOST_EMPTY", 20)
    root, row, more = "ListBucketResult", "Contents", "NextContinuationToken"

    def bend(request: Request, act: Callable[[], Answer]) -> Answer:
        number = len(fake.asked)
        rows = "".join(
            f"<{row}><Key>root/{key}</Key><Size>1</Size><UploadId>{number}</UploadId></{row}>"
            for key in shown[number % 2 :][:1]
        )
        return xml(f"<{root}>{rows}<IsTruncated>true</IsTruncated><{more}>{number:09d}</{more}></{root}>")

    for ask in (s3.list, s3.unfinished):
        before = len(fake.asked)
        with fake.bent(bend), pytest.raises(Unavailable, match="listing"):
            list(ask(""))
        assert len(fake.asked) - before <= 20
        root, row, more = "ListMultipartUploadsResult", "Upload", "NextKeyMarker"


def test_empty_pages_that_end_are_a_listing(fake: FakeS3, s3: S3Provider) -> None:
    fake.objects.put("root/a", [b"1"])

    def bend(request: Request, act: Callable[[], Answer]) -> Answer:
        begun = len(fake.asked)
        if begun < last:
            token = f"<NextContinuationToken>{begun}</NextContinuationToken>"
            return xml(f"<ListBucketResult><IsTruncated>true</IsTruncated>{token}</ListBucketResult>")
        return xml(
            "<ListBucketResult><Contents><Key>root/a</Key><Size>1</Size></Contents></ListBucketResult>"
        )

    last = len(fake.asked) + 10
    with fake.bent(bend):
        assert [found.key for found in s3.list("")] == ["a"]


@pytest.mark.parametrize("token", [{}, {"NextContinuationToken": "t"}])
def test_a_later_page_that_does_not_get_on_is_seen(token: dict[str, str]) -> None:
    page = {"IsTruncated": True, "Contents": [{"Key": "root/a"}], **token}
    with pytest.raises(ForeignAnswer):
        require_progress(
            page, "Contents", "NextContinuationToken", {"Prefix": "root/", "ContinuationToken": "t"}
        )


def test_a_key_that_is_not_there_is_one_request(fake: FakeS3, s3: S3Provider) -> None:
    """Who follows a log asks for the commit behind its end all the time."""
    before = len(fake.requests)
    for start in (None, -100):
        with pytest.raises(NotFound):
            s3.get("absent", start)
    assert len(fake.requests) - before == 2
    gone = replace(error(404, "NoSuchBucket"), headers=NAMED)
    with fake.bent(lambda request, act: gone), pytest.raises(Invalid):
        s3.get("absent")
    page = Answer(404, {"Content-Type": "text/html"}, b"<html><Code>NoSuchKey</Code></html>")
    with fake.bent(lambda request, act: page), pytest.raises(Unavailable):
        s3.get("absent")


def test_what_a_redirect_says_is_never_an_object(fake: FakeS3, s3: S3Provider) -> None:
    def bend(request: Request, act: Callable[[], Answer]) -> Answer:
        moved = error(301, "PermanentRedirect")
        return replace(moved, headers={"x-amz-bucket-region": "eu-west-1"}, body=BODY)

    with fake.bent(bend):
        for start, length in ((None, None), (0, 10)):
            with pytest.raises((Unavailable, Invalid)):
                s3.get("there", start, length)


def test_what_is_moved_elsewhere_is_never_asked_there(fake: FakeS3, s3: S3Provider) -> None:
    with FakeS3().running() as other:
        other.objects.put("there", [b"z" * len(BODY)])
        for status in (301, 302, 307, 308):
            target = {"Location": f"{other.endpoint}/bucket/there"}

            def bend(request: Request, act: Callable[[], Answer]) -> Answer:
                return Answer(status, target)  # noqa: B023 - asked within the loop

            with fake.bent(bend):
                for ask in VERBS.values():
                    with pytest.raises((Unavailable, Invalid)):
                        ask(s3, fake)
        assert not other.asked


NAMED = {"x-amz-request-id": "1"}
OBJECT = {"ETag": '"1"', "Content-Length": "9", "Last-Modified": s3lies.MODIFIED}
ROWS = b"<ListBucketResult></ListBucketResult>"
ABSENT = b"<Error><Code>NoSuchKey</Code></Error>"

FOREIGN = {
    "a put without proof": ("PutObject", 200, {}, b""),
    "a put to a page with an ETag": ("PutObject", 200, {"ETag": '"1"', "Content-Type": "text/html"}, b""),
    "a put with an error": (
        "PutObject",
        200,
        {**NAMED, "ETag": '"1"'},
        b"<Error><Code>InternalError</Code></Error>",
    ),
    "a part without an ETag": ("UploadPart", 200, NAMED, b""),
    "a listing without XML": ("ListObjectsV2", 200, NAMED, b""),
    "a listing of something else": ("ListObjectsV2", 200, NAMED, b"<rss></rss>"),
    "an object without an ETag or a time": ("GetObject", 200, {"Content-Length": "9"}, None),
    "an object, not quite": ("GetObject", 203, OBJECT, None),
    "no object": ("HeadObject", 204, {**OBJECT, **NAMED}, b""),
    "an object in gzip": ("GetObject", 200, {**OBJECT, "Content-Encoding": "gzip"}, None),
    "an object of no length": ("GetObject", 200, {"ETag": '"1"'}, None),
    "a HEAD of no length": ("HeadObject", 200, {"ETag": '"1"', "Transfer-Encoding": "chunked"}, b""),
    "a HEAD elsewhere": ("HeadObject", 302, {"Location": "http://elsewhere.invalid/"}, b""),
    "absent, by a page": ("GetObject", 404, {"Content-Type": "text/plain"}, b"not found"),
    "a delete with a body": ("DeleteObject", 200, {}, b"ok"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_an_answer_of_somebody_else_is_seen(case: str) -> None:
    with pytest.raises(ForeignAnswer):
        StoreAnswers().judge(*FOREIGN[case])


def test_the_answers_of_stores_are_taken() -> None:
    answers = StoreAnswers()
    answers.judge("PutObject", 200, {"x-amz-checksum-crc32c": "AAAAAA=="}, b"")
    answers.judge("ListObjectsV2", 200, {"Content-Type": "text/html", **NAMED}, ROWS)
    answers.judge("GetObject", 206, {"ETag": '"1"', "Transfer-Encoding": "chunked"}, None)
    answers.judge("GetObject", 404, {}, ABSENT)
    answers.judge("HeadObject", 404, {}, b"")
    answers.judge("HeadObject", 301, {"x-amz-bucket-region": "eu-west-1"}, b"")
    answers.judge("DeleteObject", 204, {}, b"")
    answers.judge("DeleteObject", 204, NAMED, b"")
    with pytest.raises(ForeignAnswer):  # it names its requests, as was seen
        answers.judge("DeleteObject", 204, {}, b"")
    answers.judge("GetObject", 404, NAMED, ABSENT)
    later = StoreAnswers()
    later.judge("GetObject", 404, {}, ABSENT)
    later.expect(answers.shown)
    for again in (answers, later):
        again.judge("GetObject", 206, {"ETag": '"1"', "Content-Length": "9"}, None)  # of these none was seen
        with pytest.raises(ForeignAnswer, match="gave before"):
            again.judge("GetObject", 404, {}, ABSENT)


OTHER_BYTES: dict[str, tuple[int, str | int]] = {
    "elsewhere": (50, "bytes 200-249/1000"),
    "fewer than it says": (49, "bytes 100-149/1000"),
    "of an unknown length": (50, "bytes 100-149/*"),
    "neither all nor what was asked for": (49, 1000),
}


@pytest.mark.parametrize("case", OTHER_BYTES)
def test_bytes_that_were_not_asked_for_are_seen(case: str) -> None:
    count, stated = OTHER_BYTES[case]
    with pytest.raises(ForeignAnswer):
        of_range(100, 50, bytes(count), stated)
    assert of_range(100, 50, bytes(50), "bytes 100-149/1000") == (bytes(50), 1000)
    assert of_range(100, 50, bytes(1000), "bytes 0-999/1000") == (bytes(50), 1000)


ACCEPTED = ("no ETag, no id", "range ignored", "200 for a range")
"""Lies that a store may tell for ever, and that the probe takes it with."""


@pytest.mark.parametrize("lie", s3lies.LIES)
def test_the_probe_says_what_is_lost_beside_a_liar_or_nothing_is(
    fake: FakeS3, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    monkeypatch.setattr(probing, "RACERS", 4)
    monkeypatch.setattr(probing, "SMALL_ROUNDS", 1)
    monkeypatch.setattr(probing, "LARGE_ROUNDS", 1)
    s3 = S3Provider("bucket", "root", fake.store(read_timeout_ms=500), ManualClock())
    provider = Retrying(s3, ManualClock(), random.Random(7), attempts=2, base_ms=1, max_ms=1)
    with fake.bent(s3lies.LIES[lie]):
        said: object = None
        try:
            require_promises(probe(provider, ManualClock()), accept_weak=False)
        except (Unavailable, Refused) as error:
            said = error.hint or error.fields["found"]
        assert bool(said) != (lie in ACCEPTED)
        if said:
            return
        assert put_own(provider, "new", [BODY]).length == len(BODY)
        with pytest.raises(Conflict):
            put_own(provider, "new", [BODY[::-1]])
        for verb, ask in VERBS.items():
            assert verb.startswith(("put", "list")) or ask(s3, fake), verb
        assert [found.key for found in s3.list("")] == ["new"]
    s3.close()
