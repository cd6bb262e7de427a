"""Single messages: by physical offset (33) and by key (12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tiered.archive.read.lookup import KeyLookup
from tiered.codec.record.layout import physical_offset_of
from tiered.codec.record.message import decode_message
from tiered.codec.remoting.codes import QueryRequest, RequestCode, ResponseCode, number_field
from tiered.codec.remoting.frame import Command
from tiered.gateway.knowledge.archive import LookupArchive
from tiered.gateway.knowledge.asking import Asking
from tiered.gateway.knowledge.rights import Rights, unproven
from tiered.gateway.knowledge.stored import NOT_FOUND, is_not_found, is_record_at, whole_records
from tiered.gateway.knowledge.unchecked import Lacking, Unchecked
from tiered.gateway.ports import ConnectionInfo
from tiered.gateway.reply import changed, max_body_bytes, reply
from tiered.metrics import Metrics
from tiered.settings import MIB, Gateway

MAX_FOUND = 1024
"""Most messages of one query, whatever the client asks for."""

UNIQUE_FOUND = 32
"""What a broker looks up for a unique key, whatever the client asks for (``defaultQueryMaxNum``)."""

ONE_MORE = 4 * MIB
"""Asked for beyond what fits one answer, so that it is seen when more was found: a broker's largest message, by default."""


class Lookups:
    """Finds in the archive what the broker cannot find any more."""

    def __init__(
        self,
        archive: LookupArchive,
        asking: Asking,
        settings: Gateway,
        metrics: Metrics,
        rights: Rights,
        served: Callable[[str], bool],
        unchecked: Unchecked,
    ) -> None:
        """``served``: whether messages of a topic may come from the archive at all."""
        self._archive = archive
        self._asking = asking
        self._metrics = metrics
        self._rights = rights
        self._served = served
        self._unchecked = unchecked
        self._max_bytes = max_body_bytes(settings)

    def passes(self, request: Command, answer: Command) -> bool:
        """Whether the archive cannot help: only *found* and *not found* are looked at."""
        if request.code == RequestCode.VIEW_MESSAGE_BY_ID:
            return answer.code != ResponseCode.SUCCESS and not is_not_found(answer)
        return answer.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)

    async def view(self, request: Command, answer: Command, connection: ConnectionInfo) -> Command | None:
        """33: the broker's record if it is one, else the archive's.

        A broker asked for an offset where no record begins answers *found* with whatever lies there, so its body is checked:
        one whole record of that physical offset whose CRC is right. The archive's record must be of the topic asked for, if one
        is named, and of one that the archive answers for: the places of other topics' messages are easy to guess.
        """
        offset = number_field(request.ext, "offset")
        garbage = answer.code == ResponseCode.SUCCESS and not is_record_at(answer.body, offset)
        if answer.code == ResponseCode.SUCCESS and not garbage:
            return self._count("view", "passed", None)
        if garbage:
            self._metrics.gateway_garbage.inc()
        record = None
        if offset >= 0:
            record = await self._asking.call(connection, lambda: self._archive.view_message(offset))
        if record is not None and len(record) > self._max_bytes:
            self._unchecked.count("view", Lacking.ROOM)
        elif record is not None:
            topic = decode_message(record).topic
            if request.ext.get("topic") in (None, "", topic) and self._served(topic):
                if not self._rights.may_read(request.ext, topic):
                    return self._count("view", "refused", unproven(answer, topic))
                return self._count("view", "archive", changed(answer, ResponseCode.SUCCESS, None, {}, record))
        if not garbage:
            return self._count("view", "passed", None)
        remark = f"{NOT_FOUND} message by the offset, {offset}"
        return self._count("view", "refused", reply(answer, ResponseCode.SYSTEM_ERROR, remark))

    async def query(self, request: Command, answer: Command, connection: ConnectionInfo) -> Command | None:
        """12: the broker's messages, then the archive's that are not among them, up to the number asked for.

        While the archive cannot say which it has, the broker's alone would look like all of them: the client tries again.
        """
        query = QueryRequest.parse(request.ext)
        if query.paged or query.other_index:
            self._unchecked.count("query", Lacking.KIND)
            return None
        most = max(query.max_count, UNIQUE_FOUND) if query.unique else query.max_count
        most = max(0, min(most, MAX_FOUND))
        local = whole_records(answer.body) if answer.code == ResponseCode.SUCCESS else []
        if len(local) >= most or (answer.code == ResponseCode.SUCCESS and not local):
            return self._count("query", "passed", None)
        lookup = KeyLookup(
            query.topic,
            query.key,
            most,
            query.begin_ms,
            query.end_ms,
            unique=query.unique,
            max_bytes=self._max_bytes + ONE_MORE,
        )
        archived = await self._asking.call(connection, lambda: self._archive.query_message(lookup))
        merged, whole = self._merge(local, archived, most)
        if whole:
            self._unchecked.complete("query")
        else:
            self._unchecked.count("query", Lacking.ROOM)
        if len(merged) == len(local):
            return self._count("query", "passed", None)
        body = b"".join(merged)
        return self._count("query", "archive", changed(answer, ResponseCode.SUCCESS, None, {}, body))

    def _merge(
        self, local: Sequence[memoryview], archived: Sequence[memoryview], most: int
    ) -> tuple[list[memoryview], bool]:
        """What fits one frame, and whether no record was too much for it. One message has one physical offset, wherever it is
        kept. The newest archived ones first."""
        merged = list(local)
        seen = {physical_offset_of(record) for record in local}
        size, whole = sum(map(len, local)), True
        for record in reversed(archived):
            place = physical_offset_of(record)
            if len(merged) >= most:
                break
            if place in seen:
                continue
            if size + len(record) > self._max_bytes:
                whole = False
                continue
            seen.add(place)
            merged.append(record)
            size += len(record)
        return merged, whole

    def _count(self, what: str, outcome: str, made: Command | None) -> Command | None:
        self._metrics.cold_answers.labels(what, outcome).inc()
        return made
