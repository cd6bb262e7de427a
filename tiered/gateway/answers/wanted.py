"""Codes of the requests that the gateway answers, corrects or watches, by what becomes of them."""

from __future__ import annotations

from tiered.codec.remoting.codes import RequestCode

STATS: frozenset[int] = frozenset(
    {RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_CONSUME_STATS, RequestCode.QUERY_CONSUME_TIME_SPAN}
)
LOOKUPS = frozenset({RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.QUERY_MESSAGE})
TELLING = frozenset(
    {RequestCode.HEART_BEAT, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UNREGISTER_CLIENT}
)
"""Requests that say something of who sends them, which holds when the broker has taken it."""

CODES: frozenset[int] = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
    }
)
"""Requests that are answered, corrected or watched; all others pass unread."""
