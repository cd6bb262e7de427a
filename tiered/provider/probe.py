"""The start-up probe: tries to *refute* what the archive needs of its store, instead of believing what the driver says.

Some S3 servers silently ignore ``If-None-Match``; others honour it one request after another and let several racers win.
An archive on such a store can lose commits when two writers meet, so a refuted store is refused, unless the operator
accepts what is then not protected.
"""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from tiered.clock import Clock
from tiered.errors import Conflict, Invalid, NotFound, Refused, TieredError, Unavailable
from tiered.provider.base import Provider
from tiered.provider.resolve import put_own, tidy
from tiered.provider.wrap import is_after_unknown

RACERS = 32
START_SECONDS = 60.0
"""How long racers wait for each other: for ever, and one thread that never came would have the daemon stand still."""
SMALL_BYTES = 100
LARGE_BYTES = 256 * 1024
SMALL_ROUNDS = 4
LARGE_ROUNDS = 3
CUT_BYTES = 256 * 1024

TWO_WRITERS = "two daemons, or one and its own late request, can both believe that they own the archive: commits may be lost"
HALF_OBJECTS = "an upload that breaks off can leave a damaged object under its name, or block it for the upload that follows"
UNPROVEN = "each put is sent twice and read back, and what replaces an object (a sign of life) never counts as stored"
READERS = "readers cannot find the end of an object: the archive cannot be read back"
LISTING = "checkpoints and orphans can be overlooked: opening may start from an old state, and nothing may be removed"
DELETING = (
    "nothing the archive retires can be deleted: retention frees no space, and the probe's own keys stay"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One promise: ``held`` if the probe could not refute it. ``unprotected`` says what is lost without it; ``essential``
    whether the archive is refused for it."""

    capability: str
    held: bool
    detail: str
    unprotected: str
    essential: bool = True


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """All findings of one probe. ``clock_offset_ms``: the store's clock minus this host's, at the first put."""

    url: str
    findings: tuple[Finding, ...]
    clock_offset_ms: int
    seconds: float

    @property
    def refuted(self) -> tuple[Finding, ...]:
        """Essential promises that do not hold."""
        return tuple(finding for finding in self.findings if finding.essential and not finding.held)


def probe(provider: Provider, clock: Clock, *, prefix: str = "") -> ProbeReport:
    """Try to refute create-only, whole uploads, suffix ranges and listings of ``provider``, then delete what was written.

    Keys are ``<prefix>probe/<uuid>``. About 280 requests, from up to 32 short-lived threads. Raises ``Unavailable``
    if the store answers too little to judge, ``Invalid`` if it cannot be used at all.
    """
    return _Probe(provider, clock, prefix).run()


def require_promises(report: ProbeReport, *, accept_weak: bool) -> tuple[str, ...]:
    """Raise ``Refused`` if an essential promise is refuted, naming each and what is then lost.

    With ``accept_weak`` nothing is raised, and the sentences are returned for the log and the status page.
    """
    lost = tuple(
        f"{finding.capability}: {finding.detail}; {finding.unprotected}" for finding in report.refuted
    )
    if lost and not accept_weak:
        raise Refused(
            "the store does not keep a promise the archive is built on: " + " | ".join(lost),
            url=report.url,
            hint="use another store, or accept this with archive.accept_weak_store = true",
        )
    return lost


class _Probe:
    def __init__(self, provider: Provider, clock: Clock, prefix: str) -> None:
        self._provider = provider
        self._clock = clock
        self._base = f"{prefix}probe/"
        # All but the last eighth of the keys' uuids is the same, so that a listing can be narrowed to them.
        self._common = str(uuid.uuid4())[:-8]
        self._used: list[str] = []
        self._findings: list[Finding] = []
        self._clock_offset_ms = 0

    def run(self) -> ProbeReport:
        began = self._clock.monotonic()
        try:
            self._second_put()
            self._proof()
            self._race()
            self._cut()
            self._suffix()
            self._listing()
        finally:
            self._clean_up()
        return ProbeReport(
            self._provider.url, tuple(self._findings), self._clock_offset_ms, self._clock.monotonic() - began
        )

    def _key(self, number: int) -> str:
        key = f"{self._base}{self._common}{number:08x}"
        self._used.append(key)
        return key

    def _add(
        self, capability: str, problem: str | None, fine: str, unprotected: str, *, essential: bool = True
    ) -> None:
        self._findings.append(Finding(capability, problem is None, problem or fine, unprotected, essential))

    def _second_put(self) -> None:
        key = self._key(0)
        first = put_own(self._provider, key, [b"first"])
        self._clock_offset_ms = first.date_ms - self._clock.now_ms()
        problem = None
        try:
            self._provider.put(key, [b"second"])
            problem = "a second create-only put was accepted"
        except Conflict:
            pass
        if self._provider.get(key).data != b"first":
            problem = "a second create-only put replaced the object"
        if problem is None and not self._provider.capabilities.create_only:
            problem = "this file system looks first and then writes, which is not atomic"
        self._add("create-only", problem, "a second put was refused", TWO_WRITERS)

    def _proof(self) -> None:
        """Whether the answer to a put shows that it is the store's; one answer may be lost on its way."""
        held = self._proves(self._key(3)) or self._proves(self._key(4))
        problem = None if held else "puts are answered without an ETag, a checksum, a version or a request id"
        self._add("proven puts", problem, "an answer shows that it is the store's", UNPROVEN, essential=False)

    def _proves(self, key: str) -> bool:
        try:
            self._provider.put(key, [b"proof"])
        except (Conflict, Unavailable):
            with suppress(NotFound):
                return self._provider.get(key).data != b"proof"
        return True

    def _race(self) -> None:
        if not self._findings[0].held:
            return  # refuted already; a race would prove nothing more
        problem = None
        with ThreadPoolExecutor(RACERS, thread_name_prefix="probe") as pool:
            for number in range(SMALL_ROUNDS + LARGE_ROUNDS):
                size = SMALL_BYTES if number < SMALL_ROUNDS else LARGE_BYTES
                problem = self._race_once(pool, self._key(0x100 + number), size)
                if problem:
                    break
        fine = f"one winner in each of {SMALL_ROUNDS + LARGE_ROUNDS} races of {RACERS}"
        self._add("create-only under a race", problem, fine, TWO_WRITERS)

    def _race_once(self, pool: ThreadPoolExecutor, key: str, size: int) -> str | None:
        start, failures = threading.Barrier(RACERS), list[Unavailable]()

        def put(racer: int) -> bool | None:
            """True: won, False: lost, None: unknown."""
            start.wait(START_SECONDS)
            try:
                self._provider.put(key, [_body(racer, size)])
            except Conflict as conflict:
                return None if is_after_unknown(conflict) else False
            except Unavailable as error:
                failures.append(error)
                return None
            return True

        try:
            results = list(pool.map(put, range(RACERS)))
        except threading.BrokenBarrierError:
            raise Unavailable(
                "a race of the probe did not begin: not all of its threads came to the start",
                expected=RACERS,
                seconds=START_SECONDS,
                hint="look at the limit of threads of this process, and start it again",
            ) from None
        winners = [racer for racer, won in enumerate(results) if won]
        unknown = [racer for racer, won in enumerate(results) if won is None]
        if len(winners) > 1:
            return f"{len(winners)} of {RACERS} writers racing for one key were told that they had created it"
        try:
            found = self._provider.get(key).data
        except NotFound:
            if winners:
                return "a race's winner left no object"
            failure = failures[-1]
            raise Unavailable(
                f"no put of a race arrived, the store cannot be judged now: {failure.message}",
                hint=failure.hint,
                **{**failure.fields, "key": key, "url": self._provider.url},
            ) from failure
        if not any(found == _body(racer, size) for racer in winners or unknown):
            return "after a race the object holds other bytes than its winner's"
        return None

    def _cut(self) -> None:
        """An upload that breaks off half way leaves nothing, and does not block the name."""
        cutter = self._provider.capabilities.cutter
        key = self._key(1)
        body = _body(1, CUT_BYTES)
        problem: str | None = None
        fine = "a first and a second put are as they should be (this driver cannot cut a connection)"
        if cutter is not None:
            fine = "a cut upload left nothing, and the next one went through"
            with suppress(Unavailable):
                cutter.put_cut(key, [body])
            with suppress(NotFound):
                left = self._provider.head(key)
                problem = f"an upload cut half way left an object of {left.length} bytes"
        if problem is None:
            problem = self._put_after_cut(key, body)
        self._add("whole uploads", problem, fine, HALF_OBJECTS)

    def _put_after_cut(self, key: str, body: bytes) -> str | None:
        try:
            self._provider.put(key, [body])
        except Conflict as conflict:
            if not is_after_unknown(conflict):
                return "after a cut upload the key counts as taken"
        if self._provider.get(key).data != body:
            return "after a cut upload the object does not hold the bytes stored next"
        try:
            self._provider.put(key, [b"again"])
        except Conflict:
            return None
        if self._provider.capabilities.create_only:
            return "after a cut upload a second create-only put was accepted"
        return None

    def _suffix(self) -> None:
        data = bytes(range(256)) * 4
        key = self._key(2)
        put_own(self._provider, key, [data])
        problem = None
        for asked, wanted in ((-100, data[-100:]), (-5000, data), (-1024, data)):
            found = self._provider.get(key, asked)
            if found.data != wanted:
                problem = (
                    f"the last {-asked} bytes of {len(data)} came back as {len(found.data)} bytes, or others"
                )
                break
        if self._provider.get(key, 500, 24).data != data[500:524]:
            problem = "a byte range came back wrong"
        self._add("ranges", problem, "suffix and inner ranges are right", READERS)

    def _listing(self) -> None:
        keys = [
            self._key(number)
            for number in (0xF000000B, 0xF00000A0, 0xF0000000, 0xF0000010, 0xF000009F, 0xF000000A)
        ]
        wanted = sorted(keys, key=str.encode)
        self._add(
            "listing",
            self._listing_problem(keys, wanted),
            "in order, and complete right after a put",
            LISTING,
        )

    def _listing_problem(self, keys: list[str], wanted: list[str]) -> str | None:
        listed: list[str] = []
        ours = f"{self._base}{self._common}f"
        for key in keys:
            put_own(self._provider, key, [b"x"])
            listed = [stored.key for stored in self._provider.list(ours)]
            if key not in listed:
                return "a key was not listed right after it was put"
        if listed != wanted:
            return "keys are not listed in the order of their bytes"
        after = [stored.key for stored in self._provider.list(ours, start_after=wanted[1], limit=3)]
        if after != wanted[2:5]:
            return "a listing does not start after the key it was asked to start after"
        return None

    def _clean_up(self) -> None:
        problem = None
        for key in self._used:
            try:
                self._provider.delete(key)
            except (Invalid, Unavailable) as error:
                problem = f"a probe key could not be deleted: {error.message}"
                break
            except TieredError:
                continue
        if problem is None:
            problem = self._undeleted()
        tidy(self._provider, self._base)
        self._add("deleting", problem, "the probe's keys are gone", DELETING, essential=False)

    def _undeleted(self) -> str | None:
        """Some stores say that they deleted, and do nothing: a lock or a retention rule of the bucket holds the object."""
        try:
            left = sum(1 for _ in self._provider.list(f"{self._base}{self._common}"))
        except TieredError:
            return None  # why is said by whatever comes next
        if not left:
            return None
        return f"{left} keys are there that the store said it deleted: look for a lock or retention rule of the bucket"


def _body(racer: int, size: int) -> bytes:
    return racer.to_bytes(4, "big") * (size // 4)
