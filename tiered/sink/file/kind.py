"""The kind *file*: its options, and how it is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tiered.clock import SystemClock
from tiered.errors import Invalid, NotFound, Refused
from tiered.provider.base import Provider
from tiered.provider.open import open_provider
from tiered.settings import MIB, Store
from tiered.sink.base import Sink
from tiered.sink.comparison.base import ReadBack
from tiered.sink.file.formats import FORMATS, file_format
from tiered.sink.file.reading import FileReadBack
from tiered.sink.file.sink import FileSink
from tiered.sink.kinds import SinkPlace
from tiered.sink.optionvalues import choice_of, known_options, needed, size_of
from tiered.sink.order import SinkOrder
from tiered.text.references import resolve

KEYS = ("access_key_id", "secret_access_key", "session_token")
OPTIONS = ("location", "format", "file_bytes", *KEYS)


class FileKind:
    """``location``: a URL as an archive's (``file://``, ``s3://``, ``fsspec+…``), with its options; ``format``: jsonl or
    parquet; ``file_bytes``: where a file ends; keys of an S3 store where the standard chain has none."""

    def lasting(self) -> tuple[str, ...]:
        """As of ``LastingKind``."""
        return ("location", "format")

    def check(self, order: SinkOrder) -> None:
        known_options(order, OPTIONS)
        choice_of(order, "format", FORMATS, "jsonl")
        self._file_bytes(order)
        file_format(choice_of(order, "format", FORMATS, "jsonl"))
        provider = self._provider(order)
        try:
            if not provider.capabilities.create_only:
                raise Refused(
                    "this store cannot put an object only where none is, which exactly-once rests on",
                    field="options.location", found=provider.url, hint="use file://, s3:// or fsspec+gs://",
                )  # fmt: skip
        finally:
            provider.close()

    def check_parts(self, order: SinkOrder) -> bool:
        """As of ``PartedKind``: each part has manifests and files of its own."""
        return True

    def open(self, order: SinkOrder, place: SinkPlace) -> Sink:
        made = file_format(choice_of(order, "format", FORMATS, "jsonl"))
        provider = self._provider(order)
        try:
            if provider.capabilities.root is not None:
                provider.capabilities.root.create_root()
            return FileSink(provider, place, made, self._file_bytes(order))
        except NotFound as error:
            provider.close()
            raise Invalid(error.message, field="options.location", found=provider.url) from error
        except BaseException:
            provider.close()
            raise

    def read_back(self, order: SinkOrder, place: SinkPlace) -> ReadBack:
        """As of ``ReadableKind``."""
        made = choice_of(order, "format", FORMATS, "jsonl")
        return FileReadBack(self._provider(order), place, parquet=made == "parquet")

    def _provider(self, order: SinkOrder) -> Provider:
        location = resolve(needed(order, "location", "file:///path or s3://bucket/prefix"))
        try:
            return open_provider(location, _store(order.options), SystemClock())
        except Invalid as error:
            raise type(error)(
                error.message.replace("archive.url", "location"), hint=error.hint, **error.fields
            ) from error

    def _file_bytes(self, order: SinkOrder) -> int:
        return size_of(order, "file_bytes", 64 * MIB, least=4096, most=1024 * MIB)


def _store(options: Mapping[str, str]) -> Store:
    key, secret, token = (resolve(options.get(name, "")) for name in KEYS)
    return replace(Store(), access_key_id=key, secret_access_key=secret, session_token=token)
