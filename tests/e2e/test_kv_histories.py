"""Two key-value views of one real broker, with clients of both, while views and broker are killed, paused, emptied, a disk runs
full and a tail is lost: each key's history is linearizable, and what was acknowledged is there. ``make soak-kv`` is longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.broker import Broker
from tests.kit.kvlosses import LOST, LossCampaign
from tests.kit.kvsoak import CLIENTS, FAULTS, KvCampaign

pytestmark = [pytest.mark.broker, pytest.mark.porcupine, pytest.mark.slow]
OF_VIEWS = FAULTS[:4]
ACKNOWLEDGED = 10 * CLIENTS


@pytest.mark.parametrize(
    ("made", "seed", "faults"),
    [
        (KvCampaign, 12, OF_VIEWS),
        (LossCampaign, 13, (*FAULTS, LOST)),
        (KvCampaign, 14, OF_VIEWS),
        (KvCampaign, 15, OF_VIEWS),
    ],
)
def test_histories_are_linearizable_whatever_dies(
    broker: Broker, tmp_path: Path, made: type[KvCampaign], seed: int, faults: tuple[str, ...]
) -> None:
    outcome = made(tmp_path, broker, seed).run(0, faults, acknowledged=ACKNOWLEDGED)
    assert outcome.wrong == []
    assert outcome.verdict is not None
    assert outcome.verdict.good, str(outcome.verdict)
    assert outcome.actions.keys() >= set(faults)
    assert outcome.actions["acknowledged once and for all"] >= ACKNOWLEDGED
    assert outcome.outcomes["answered"] >= ACKNOWLEDGED
    assert outcome.messages >= ACKNOWLEDGED
