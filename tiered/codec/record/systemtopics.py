"""RocketMQ's own topics. The list follows its ``TopicValidator`` and ``MessageStoreTopicFilter``; ``%RETRY%`` and ``%DLQ%``
topics are the users' own."""

from __future__ import annotations

from tiered.model import OFF_QUEUE_TOPIC

SYSTEM_TOPICS = frozenset(
    {
        OFF_QUEUE_TOPIC,
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
SYSTEM_PREFIXES = ("rmq_sys_",)


def is_system_topic(topic: str, *, cluster: str = "", broker: str = "") -> bool:
    """True for RocketMQ's own topics, the archive's off-queue topic, and the topics named as broker and cluster."""
    return (
        not topic or topic in SYSTEM_TOPICS or topic in (cluster, broker) or topic.startswith(SYSTEM_PREFIXES)
    )
