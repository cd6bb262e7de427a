"""What requests are called in metrics."""

from __future__ import annotations

from collections.abc import Mapping

from tiered.codec.remoting.codes import RequestCode

_NAMES: Mapping[int, str] = {
    RequestCode.GET_MIN_OFFSET: "min_offset",
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: "search_offset",
    RequestCode.GET_EARLIEST_MSG_STORETIME: "earliest_time",
    RequestCode.VIEW_MESSAGE_BY_ID: "view",
    RequestCode.QUERY_MESSAGE: "query",
    RequestCode.GET_TOPIC_STATS_INFO: "topic_stats",
    RequestCode.GET_CONSUME_STATS: "consume_stats",
    RequestCode.QUERY_CONSUME_TIME_SPAN: "consume_times",
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: "reset",
    RequestCode.QUERY_CONSUMER_OFFSET: "reset",
}


def name_of(code: int) -> str:
    """A request's name in metrics, by its code; all that are not named here are pulls."""
    return _NAMES.get(code, "pull")
