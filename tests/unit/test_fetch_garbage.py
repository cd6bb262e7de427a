"""What a read made is gone when its answer is: nothing waits for the garbage collector, which may come late."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kit.fetchscene import pull, scene
from tiered.fetch.flight import Flight
from tiered.fetch.lanes import FetchJob
from tiered.settings import KIB


def test_flights_and_answers_are_in_no_circle(tmp_path: Path) -> None:
    with scene(tmp_path) as s:
        s.send(400, noise=True)
        state = s.state
        with ThreadPoolExecutor(4) as pool:
            fetcher = s.fetcher(pool=pool, request_bytes=64 * KIB)
            gc.collect()
            gc.disable()
            try:
                for offset in range(0, 400, 8):
                    got = fetcher.read_async(state, pull(offset, 8), 1).result(30)
                    assert len(got.records) == 8
                fetcher.close()
                pool.shutdown()
                left = [type(found) for found in gc.get_objects() if type(found) in (Flight, FetchJob)]
            finally:
                gc.enable()
        assert left == []
