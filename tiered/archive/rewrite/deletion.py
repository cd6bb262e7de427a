"""Deleting keys in batches of which each key has an answer of its own, also where one of them fails the request for all.

A store may refuse a request because of one key in it, or fail over it, again and again. Such a batch is divided until that key
is alone, and a key that was refused alone is never asked for together with others again: it holds back nobody but itself. What
dividing costs is bounded, since a store that refuses everything, or is away, answers no piece either.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tiered.crashpoint import AgeingPoint, reach
from tiered.errors import TieredError, Unavailable, passes_soon
from tiered.provider.base import Provider

FAILED_REQUESTS = 24
"""Requests of which nothing was deleted, one after the other, after which no batch is divided any more: enough to find one key
among 1,000 twice. One that the store did not answer was tried several times and counts for half of them."""
MOST_ALONE = 1000
"""Keys that are asked for alone because they were refused alone."""


class Deletion:
    """Deletes keys. Of one thread, beside those it starts. What it learned of single keys is kept for as long as it lives."""

    def __init__(self, provider: Provider, threads: int) -> None:
        self._provider = provider
        self._threads = threads
        self._at_once = provider.capabilities.delete_keys
        self._alone: set[str] = set()

    def delete(self, keys: Sequence[str]) -> dict[str, TieredError]:
        """Delete keys; those that are not known to be gone, and why."""
        together = [key for key in keys if key not in self._alone]
        parts = [together[at : at + self._at_once] for at in range(0, len(together), self._at_once)]
        parts += [[key] for key in keys if key in self._alone]
        patience, failed = _Patience(), dict[str, TieredError]()
        with ThreadPoolExecutor(self._threads, thread_name_prefix="delete") as pool:
            for answers in pool.map(lambda part: self._part(part, patience), parts):
                failed.update(answers)
        failed.update(self._still_there([key for key in keys if key not in failed]))
        self._alone -= set(keys) - failed.keys()
        self._alone.update(list(patience.alone)[: MOST_ALONE - len(self._alone)])
        most = self._provider.capabilities.delete_keys
        self._at_once = max(1, self._at_once // 2) if patience.over else min(most, 2 * self._at_once)
        return failed

    def _still_there(self, deleted: Sequence[str]) -> dict[str, TieredError]:
        """One of those that the store said are gone is looked for, at one request a round: a store whose bucket is locked may
        say so of all of them, and do nothing."""
        if not deleted or self._provider.capabilities.delete_keys == 1:
            return {}
        try:
            self._provider.head(deleted[0])
        except TieredError:
            return {}
        error = Unavailable(
            "the store said that it deleted an object, and it is there",
            key=deleted[0],
            url=self._provider.url,
            hint="look for a lock or retention rule of the bucket, and for a version that came back",
        )
        return dict.fromkeys(deleted, error)

    def _part(self, keys: Sequence[str], patience: _Patience) -> dict[str, TieredError]:
        """One request, and more where it fails as a whole. What has no answer is asked for again in a later round (D6)."""
        failed, pieces = dict[str, TieredError](), [keys]
        while pieces:
            piece = pieces.pop()
            answers = self._ask(piece)
            whole = _of_all(piece, answers)
            if whole is None:
                patience.answered()
            elif len(piece) == 1:
                if len(keys) > 1:
                    patience.found(piece[0], whole)
            elif patience.divides(whole):
                half = len(piece) // 2
                pieces += [piece[half:], piece[:half]]
                continue
            failed.update(answers)
            if len(answers) < len(piece):
                reach(AgeingPoint.AFTER_FIRST_DELETE)
        return failed

    def _ask(self, keys: Sequence[str]) -> Mapping[str, TieredError]:
        try:
            return self._provider.delete_many(keys)
        except TieredError as error:
            return dict.fromkeys(keys, error)


def _of_all(keys: Sequence[str], failed: Mapping[str, TieredError]) -> TieredError | None:
    """The error of a request as a whole: the one that all of its keys share."""
    first = next(iter(failed.values()), None)
    shared = len(failed) == len(keys) and all(error is first for error in failed.values())
    return first if shared else None


class _Patience:
    """How many requests may still fail before batches are left whole. Of any thread.

    ``alone``: keys that were found by dividing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = FAILED_REQUESTS
        self.over = False
        """Whether a batch was left whole."""
        self.alone: dict[str, None] = {}

    def answered(self) -> None:
        """The store deletes."""
        with self._lock:
            self._left = FAILED_REQUESTS

    def divides(self, error: TieredError) -> bool:
        """Whether a request that failed so is to be divided."""
        with self._lock:
            divided = self._left > 0
            self._spend(error)
            self.over = self.over or not divided
            return divided

    def found(self, key: str, error: TieredError) -> None:
        """What is left of a batch that was divided is this key."""
        with self._lock:
            self._spend(error)
            self.alone[key] = None

    def _spend(self, error: TieredError) -> None:
        self._left -= FAILED_REQUESTS // 2 if passes_soon(error) else 1
