"""What ``tiered status`` says of money and of topics that are gone: no more than fold, settings and the broker's files tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tiered.archive.read.view import View
from tiered.archive.rewrite.holds import holds_in_force
from tiered.archive.rewrite.policy import RetentionPolicy, policy_from
from tiered.archive.state.forgotten import KeptBack
from tiered.archive.state.values import Forgotten, Head, ObjectState
from tiered.archive.state.view import ArchiveState
from tiered.cli.figures import Figures
from tiered.daemon.brokertopics import BrokersTopics
from tiered.errors import TieredError
from tiered.settings import ONE_DAY_MS, Settings
from tiered.text.human import duration, second
from tiered.text.prices import Price

MONTH_MS = ONE_DAY_MS * 365 / 12
LEAST_AGE_MS = 3_600_000
"""Of an archive whose pace of writing means something."""

_NOTHING = KeptBack(0, 0, 0)


def month(
    view: View, items: Sequence[ObjectState], now_ms: int, prices: Sequence[Price], currency: str
) -> list[dict[str, object]]:
    """What each store charges for a month of the archive as it stands: of what the fold knows (``items``: objects, and the data
    inside commits), and of writing on at its mean pace so far: a request for each commit and each object that is still there.
    Checkpoints, edits of commits, and requests that read are not in it."""
    lengths = [item.length for item in items]
    puts = _puts_a_month(view, items, now_ms)
    found: list[dict[str, object]] = []
    for price in prices:
        stored = sum(max(length, price.minimum_object_bytes) for length in lengths)
        storage = stored / price.bytes_per_gb * price.storage_gb_month
        writing = None if puts is None else puts / 1000 * price.put_per_1000
        found.append(
            {
                "store": price.name,
                "currency": currency,
                "storage": round(storage, 4),
                "writing": None if writing is None else round(writing, 4),
                "total": None if writing is None else round(storage + writing, 4),
            }
        )
    return found


def _puts_a_month(view: View, items: Sequence[ObjectState], now_ms: int) -> float | None:
    age_ms = now_ms - view.identity.created_ms
    if view.head is None or age_ms < LEAST_AGE_MS:
        return None
    objects = sum(1 for item in items if item.path)
    return (view.head.seq + 1 + objects) * MONTH_MS / age_ms


def awaiting_deletion(state: ArchiveState) -> dict[str, int]:
    """Keys that were named for deletion and are not deleted yet, and what of them the fold knows as objects."""
    keys = objects = size = 0
    for found in state.retired():
        keys += 1
        item = None if found.object is None else state.object(found.object)
        if item is not None:
            objects, size = objects + 1, size + item.length
    return {"keys": keys, "objects": objects, "bytes": size}


def noted_topics(view: View, settings: Settings) -> Mapping[str, int]:
    """Topics whose queues a daemon beside the broker has seen empty and deleted, and since when."""
    return BrokersTopics(settings, view.identity.archive_id, notes=False).empty_noted()


def forgotten_queues(
    head: Head | None, found: Figures, noted: Mapping[str, int], settings: Settings
) -> dict[str, object]:
    """Queues that were forgotten, above which generation a queue begins, how many queues have no message now, and how many of
    these are noted, beside a daemon on this machine, as of deleted topics, until when the first of them waits."""
    gone = Forgotten() if head is None else head.forgotten
    return {
        "queues": gone.queues,
        "generation": gone.generation,
        "empty_queues": found.empty_queues,
        "waiting_queues": found.waiting_queues,
        "next_ms": min(noted.values()) + settings.gc.grace_ms if found.waiting_queues else None,
    }


def deleted_topics(view: View, settings: Settings, found: Figures) -> list[dict[str, object]] | str:
    """Topics that the broker of ``source.store_dir`` deleted, and what retention does with what is archived of them. ``found``:
    figures by topic. Of the archive nothing is asked but, once, its legal holds."""
    broker = BrokersTopics(settings, view.identity.archive_id, notes=False)
    try:
        gone = broker.deleted(set(found.topics))
    except TieredError as error:
        return f"not known: {error}"
    if not gone:
        return []
    empty, policy = broker.empty_noted(), _policy(view, settings)
    return [
        {
            "topic": topic,
            "messages": found.topics[topic],
            "seen_ms": since_ms,
            "retention": "; ".join(
                _becomes(
                    found.kept.get(topic, _NOTHING),
                    found.topics[topic],
                    list(_fate(settings, policy, topic, since_ms)),
                    list(_left(settings, empty.get(topic))),
                )
            ),
        }
        for topic, since_ms in sorted(gone.items())
    ]


def _becomes(kept: KeptBack, messages: int, fate: list[str], left: list[str]) -> Iterator[str]:
    """What becomes of a deleted topic: of its messages (``fate``), of what it keeps without any, or its queues (``left``)."""
    if messages:
        yield from fate
    if kept.lost:
        yield (
            f"{kept.lost} of its queues stay, with messages at their end that the broker lost, and wrote nothing in place of, "
            "before it deleted the topic"
        )
    if messages:
        return
    if kept.closed:
        yield f"closed parts of {kept.closed} of its queues: {'; '.join(fate)}"
    if kept.gaps:
        yield f"{kept.gaps} of its queues stay with a gap, the note of messages that were lost"
    if kept == _NOTHING:
        yield from left


def _left(settings: Settings, since_ms: int | None) -> Iterator[str]:
    """What becomes of queues that have no message."""
    if not settings.retain.forgets_queues:
        yield "no message is left; its queues stay: retain.forget_queues, and deleted_topic_ms above 0, let them go"
    elif since_ms is None:
        yield f"no message is left; forgotten {duration(settings.gc.grace_ms)} after a daemon beside the broker has seen it"
    else:
        yield f"no message is left; forgotten from {second(since_ms + settings.gc.grace_ms)} on"


def _policy(view: View, settings: Settings) -> RetentionPolicy | str:
    """Rules and legal holds, or why they are not known."""
    try:
        return policy_from(
            settings.retain, holds_in_force(view.log.provider, view.keys, view.identity.archive_id)
        )
    except TieredError as error:
        return f"not known: {error}"


def _fate(
    settings: Settings, policy: RetentionPolicy | str, topic: str, since_ms: int | None
) -> Iterator[str]:
    if isinstance(policy, str):
        yield policy
        return
    after_ms, rule = settings.retain.deleted_topic_ms, policy.rule(topic)
    own = any(policy.rule(topic) is each for _, each in policy.patterns)
    if not after_ms:
        kept = "for ever" if rule.forever else "as those of any topic"
        yield f"kept {kept}: retain.deleted_topic_ms is 0"
    elif own and rule.forever:
        yield "kept for ever by a rule of retain.topics"
    elif since_ms is None:
        yield f"trimmed {duration(after_ms)} after a daemon beside the broker has seen it"
    else:
        yield f"trimmed from {second(since_ms + after_ms)} on"
    for hold in policy.holds_of(topic):
        yield f"what the legal hold {hold.name} covers stays"
