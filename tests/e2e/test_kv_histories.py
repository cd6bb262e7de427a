"""Two key-value views of one real broker, with clients of both, while views and broker are killed, paused and emptied: each
key's history is linearizable, and what was acknowledged is there. ``make soak-kv`` goes on for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.broker import Broker
from tests.kit.kvsoak import CLIENTS, FAULTS, KvCampaign

pytestmark = [pytest.mark.broker, pytest.mark.porcupine, pytest.mark.slow]
OF_VIEWS = FAULTS[:4]
ACKNOWLEDGED = 10 * CLIENTS


@pytest.mark.parametrize(
    ("seed", "faults"), [(11, FAULTS), (12, OF_VIEWS), (13, FAULTS), (14, OF_VIEWS), (15, OF_VIEWS)]
)
def test_histories_are_linearizable_whatever_dies(
    broker: Broker, tmp_path: Path, seed: int, faults: tuple[str, ...]
) -> None:
    outcome = KvCampaign(tmp_path, broker, seed).run(0, faults, acknowledged=ACKNOWLEDGED)
    assert outcome.wrong == []
    assert outcome.verdict is not None
    assert outcome.verdict.good, str(outcome.verdict)
    assert outcome.actions.keys() >= set(faults)
    assert outcome.actions["acknowledged once and for all"] >= ACKNOWLEDGED
    assert outcome.outcomes["answered"] >= ACKNOWLEDGED
    assert outcome.messages >= ACKNOWLEDGED
