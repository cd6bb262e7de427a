"""A real master and its slave, views beside the slave, clients of both views. The master is killed and the slave takes its
place: writes find it by themselves, and nothing acknowledged is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import cache
from tests.kit.broker import NameServer
from tests.kit.brokerpair import BrokerPair
from tests.kit.kvhistory import ANSWERED
from tests.kit.kvsoak import CLIENTS
from tests.kit.kvswitch import SWITCHED, SwitchCampaign

pytestmark = [pytest.mark.broker, pytest.mark.porcupine, pytest.mark.slow]
ACKNOWLEDGED = 10 * CLIENTS


def test_a_master_that_is_lost_loses_nothing_acknowledged(tmp_path: Path) -> None:
    version = cache.ROCKETMQ_5
    with NameServer(version, tmp_path / "ns") as server, BrokerPair(version, tmp_path, server) as pair:
        first = pair.master
        campaign = SwitchCampaign(tmp_path / "campaign", pair, 21)
        outcome = campaign.run(0, ("view killed", SWITCHED), acknowledged=ACKNOWLEDGED)
        assert pair.slave is first
    assert outcome.wrong == []
    assert outcome.verdict is not None
    assert outcome.verdict.good, str(outcome.verdict)
    assert outcome.actions["acknowledged once and for all"] >= ACKNOWLEDGED
    [switched] = campaign.switched_ns
    answered = [each for each in campaign.history.operations if each.writes and each.outcome == ANSWERED]
    assert sum(each.call < switched for each in answered) >= CLIENTS
    assert sum(each.call > switched for each in answered) >= CLIENTS
