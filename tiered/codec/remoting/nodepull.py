"""What a gateway asks a read node, and what it is answered: a pull (code 11) with fields of our own.

Fields of RocketMQ's keep their names. Ours begin with ``rt``; a broker, or a client that is not a gateway, never sends them.
Layout of both headers: docs/NODES.md, "A read".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tiered.codec.checksum import crc32c
from tiered.codec.remoting.codes import TAG, RequestCode, ResponseCode, number_field, text_field
from tiered.codec.remoting.frame import Bytes, Command
from tiered.errors import BadRequest, Corrupt, Unavailable

ARCHIVE, COMMIT, CLIENT, TOKEN = "rtArchive", "rtCommit", "rtClient", "rtToken"
STATUS, COUNT, BODY_SUM, WAIT = "rtStatus", "rtCount", "rtCrc32c", "rtWaitMs"

MAX_COUNT = 65_536
"""Most messages of one read."""

MAX_WAIT_MS = 86_400_000

_ID_DIGITS = 32


class NodeStatus(Enum):
    """What became of a read. Only the first two are answers: a node never says that messages are not there."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    ELSEWHERE = "ELSEWHERE"  # nothing to give at this offset: who asks must look for himself
    OTHER_ARCHIVE = "OTHER_ARCHIVE"
    BEHIND = "BEHIND"  # the node cannot come to the commit that is asked for
    OVER_BUDGET = "OVER_BUDGET"  # the tenant has had what it may have for now: ask again in ``wait_ms``


@dataclass(frozen=True, slots=True)
class NodePull:
    """Records of a queue from queue offset ``offset`` on, of the archive ``archive_id`` (16 bytes) at ``commit`` or later.

    At most ``max_count`` messages and ``max_bytes``; ``expression`` of ``expression_type`` refuses others, empty: takes all.
    ``group`` and ``client`` (empty: the group as a whole) say who reads, for what the node's cache keeps.
    """

    archive_id: bytes
    commit: int
    topic: str
    queue_id: int
    offset: int
    max_count: int
    max_bytes: int
    group: str
    client: str = ""
    expression: str = ""
    expression_type: str = TAG

    def command(self, opaque: int, token: str) -> Command:
        """The request. ``token``: what the node wants to be shown; empty: nothing."""
        fields = {
            ARCHIVE: self.archive_id.hex(),
            COMMIT: str(self.commit),
            CLIENT: self.client,
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.offset),
            "maxMsgNums": str(self.max_count),
            "maxMsgBytes": str(self.max_bytes),
            "consumerGroup": self.group,
            "subscription": self.expression,
            "expressionType": self.expression_type,
            **({TOKEN: token} if token else {}),
        }
        return Command(RequestCode.PULL_MESSAGE, opaque, ext=fields, binary=True)

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> NodePull:
        """``BadRequest`` names the field that is missing or wrong."""
        return cls(
            archive_id=archive_id_field(fields),
            commit=_bounded(fields, COMMIT, 64, 0, (1 << 63) - 1),
            topic=text_field(fields, "topic"),
            queue_id=_bounded(fields, "queueId", 32, 0, (1 << 31) - 1),
            offset=_bounded(fields, "queueOffset", 64, 0, (1 << 63) - 1),
            max_count=_bounded(fields, "maxMsgNums", 32, 1, MAX_COUNT),
            max_bytes=_bounded(fields, "maxMsgBytes", 32, 1, (1 << 31) - 1),
            group=text_field(fields, "consumerGroup"),
            client=fields.get(CLIENT, ""),
            expression=fields.get("subscription", ""),
            expression_type=fields.get("expressionType") or TAG,
        )


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """``body``: ``count`` stored records verbatim, back to back; reading goes on at ``next_offset``. [``min_offset``,
    ``max_offset``): the archive's queue as of ``commit``."""

    status: NodeStatus
    commit: int = 0
    next_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    count: int = 0
    body: Bytes = b""
    wait_ms: int = 0

    def fields(self) -> dict[str, str]:
        """The header fields of the answer."""
        return {
            STATUS: self.status.value,
            COMMIT: str(self.commit),
            "nextBeginOffset": str(self.next_offset),
            "minOffset": str(self.min_offset),
            "maxOffset": str(self.max_offset),
            COUNT: str(self.count),
            BODY_SUM: f"{crc32c(self.body):08x}",
            **({WAIT: str(self.wait_ms)} if self.wait_ms else {}),
        }

    @classmethod
    def parse(cls, answer: Command) -> NodeAnswer:
        """``Unavailable`` if the node is busy; ``Corrupt`` if it is not one, or its body is not what the checksum says."""
        fields = answer.ext
        if answer.code == ResponseCode.SYSTEM_BUSY:
            raise Unavailable("a read node is busy", found=(answer.remark or "")[:200])
        try:
            made = cls(
                _status(answer),
                number_field(fields, COMMIT),
                number_field(fields, "nextBeginOffset"),
                number_field(fields, "minOffset"),
                number_field(fields, "maxOffset"),
                _bounded(fields, COUNT, 32, 0, MAX_COUNT),
                answer.body,
                _bounded(fields, WAIT, 32, 0, MAX_WAIT_MS) if WAIT in fields else 0,
            )
        except (BadRequest, ValueError) as error:
            found = answer.remark or str(error)
            raise Corrupt(
                "the answer of a read node makes no sense", code=answer.code, found=found[:200]
            ) from None
        if fields.get(BODY_SUM) != f"{crc32c(answer.body):08x}":
            raise Corrupt("the answer of a read node is not what its checksum says", bytes=len(answer.body))
        return made


def _status(answer: Command) -> NodeStatus:
    """A status of a later version than this is none of the two that are answers: whoever asks looks for himself."""
    said = answer.ext.get(STATUS, "")
    if answer.code == ResponseCode.PULL_NOT_FOUND and said and said not in NodeStatus.__members__:
        return NodeStatus.ELSEWHERE
    return NodeStatus(said)


def archive_id_field(fields: Mapping[str, str]) -> bytes:
    """The id of an archive, 16 bytes. ``BadRequest``."""
    text = text_field(fields, ARCHIVE)
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(text) != _ID_DIGITS or len(found) != _ID_DIGITS // 2:
        raise BadRequest(
            "a field is not an archive's id", field=ARCHIVE, expected="32 hex digits", found=repr(text[:40])
        )
    return found


def _bounded(fields: Mapping[str, str], name: str, bits: int, low: int, high: int) -> int:
    value = number_field(fields, name, bits)
    if not low <= value <= high:
        raise BadRequest("a field is out of bounds", field=name, expected=f"{low} to {high}", found=value)
    return value
