"""Every error of the program; the kind says what to do.

    TieredError
    ├── Unavailable        wait and retry: the store, the broker or the disk does not answer now
    │   └── Denied         the same, and tell the operator: it answers, and refuses who asks (credentials, rights, clock)
    ├── NotFound           answer accordingly: the key, queue or offset is not there
    ├── Conflict           look again: another writer created it first
    │   └── Fenced         stop the process: another writer owns the archive
    ├── Corrupt            quarantine and report: bytes are not what their checksum or format says
    └── Invalid            fix the input or the settings
        ├── BadRequest     answer it: whoever asks over the wire asked wrongly, and may be told so
        └── Refused        the program understands and declines: a guarantee would be lost

An error carries what, where, expected and found as named fields, and may carry a ``hint``: the command or key
that fixes it. ``str(error)`` is one paragraph fit for an operator. Never put a secret into any field.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping
from difflib import get_close_matches


class TieredError(Exception):
    """Root of the tree.

    ``message`` is one sentence; ``hint`` is the command or setting that fixes it; the keyword fields
    (``key``, ``position``, ``expected``, ``found`` …) are appended as ``name=value``.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.fields = fields

    @property
    def told(self) -> str:
        """What somebody at the other end of a connection is told: the message alone. Fields and hint are the operator's,
        and may name the bucket and its keys.
        """
        return self.message

    @property
    def said(self) -> str:
        """Message and fields without the hint: for an error that has a hint of its own and this one as its cause."""
        if not self.fields:
            return self.message
        return self.message + " (" + ", ".join(f"{k}={v}" for k, v in self.fields.items()) + ")"

    def __str__(self) -> str:
        return f"{self.said} → {self.hint}" if self.hint else self.said


class Unavailable(TieredError):
    """Wait and retry. Whether a write happened is *unknown*."""

    exit_code = 4


class Denied(Unavailable):
    """The store answers and refuses whoever asks: credentials, rights or a clock that is wrong. Nothing was written. It passes
    when a token is renewed: to everyone who only wanted something from the archive it means *not now*, and the operator gets
    the ``hint``. Nobody repeats it at once.
    """


def passes_soon(error: BaseException) -> bool:
    """Whether the same request may work a moment later: the store does not answer, and does not refuse who asks either."""
    return isinstance(error, Unavailable) and not isinstance(error, Denied)


class NotFound(TieredError):
    """The key, file, queue or offset does not exist."""

    exit_code = 5


class Conflict(TieredError):
    """The name is taken: a create-only put met an existing object (412)."""

    exit_code = 6


class Fenced(Conflict):
    """Another writer owns the archive. The process stops and touches nothing more."""

    exit_code = 7


class Corrupt(TieredError):
    """Bytes are not what their checksum, length or format says. Carries key, position, expected, found.

    Decoders know what is wrong and not what to do: without a ``hint`` of its own the error takes one from where the bytes lie,
    an object of the archive (``key``), a commit that does not fit the fold (``commit``), or neither.
    """

    exit_code = 8

    def __init__(self, message: str, *, hint: str | None = None, **fields: object) -> None:
        super().__init__(message, hint=hint or damage_hint(fields), **fields)


def damage_hint(fields: Mapping[str, object]) -> str:
    """What to do about damage: the command that shows how far it goes, and where sound bytes may come from."""
    if "key" not in fields and "commit" not in fields:
        return (
            "tiered verify --deep shows whether the archive is damaged; if it is sound, the broker's files at "
            "source.store_dir are damaged: start the broker on them (it repairs its log), or restore them"
        )
    if "key" not in fields:
        return (
            f"tiered verify shows how far the damage goes, {_before(fields['commit'])}; restore this commit from the bucket's "
            "versions or a copy, or, if verify finds nothing, delete the metadata directory under state.directory: it is "
            "rebuilt from the bucket"
        )
    parts = str(fields["key"]).split("/")
    if "checkpoint" in parts or "shard" in parts:
        return "tiered verify lists every damaged checkpoint; readers take an older one, or the log from its beginning"
    if "commit" in parts:
        return (
            f"tiered repair mends it where that can be done, or restore this key from the bucket's versions or a copy; "
            f"{_before(parts[-1])}"
        )
    if "archive.json" in parts:
        return "restore this key from the bucket's versions or a copy; tiered verify shows whether more is damaged"
    return (
        "tiered verify --deep lists every damaged object; restore this key from the bucket's versions or a copy, "
        "all other objects stay readable"
    )


def _before(commit: object) -> str:
    """How to read what lies before a commit."""
    number = str(commit)
    if not number.isdecimal() or int(number) == 0:
        return "tiered verify shows whether more is damaged"
    return f"--as-of {int(number) - 1} reads the archive as it was before"


class Invalid(TieredError):
    """The input or the settings are wrong."""

    exit_code = 2


class BadRequest(Invalid):
    """A client or an order asked wrongly. Raised only where what it sent is looked at, so it is the one error
    that a server may answer with *your mistake*; what else goes wrong, an ``Invalid`` of the store's too, is *try again*.
    """

    @property
    def told(self) -> str:
        """All of it: it is about what the client sent."""
        return str(self)


class Refused(Invalid):
    """Understood and declined, because going on would lose a guarantee (foreign archive, dishonest store …)."""

    exit_code = 3


EXIT_INCOMPLETE = 9
"""Exit code of a comparison that found no difference and could not look at everything."""

EXIT_UNEXPECTED = 70
"""Exit code of an error that is not one of this tree (sysexits' EX_SOFTWARE)."""


def exit_code(error: BaseException) -> int:
    """The process exit code of ``error``: its own for the program's errors, 130 for an interrupt, 70 for a
    surprise.
    """
    if isinstance(error, TieredError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return 130
    return EXIT_UNEXPECTED


PASSING_ERRNOS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.ENFILE,
        errno.EMFILE,
        errno.ENOMEM,
    }
)
"""What a local disk says while it is full, away or overloaded: it may pass, and no setting is wrong."""


def of_local_disk(message: str, error: OSError, *, hint: str, **fields: object) -> Unavailable | Invalid:
    """An ``OSError`` of a file that the program keeps for itself, as one of the tree: ``Unavailable`` if it may pass by itself
    (a full disk), else ``Invalid`` with ``hint``. ``fields`` name the setting and the path."""
    found = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable(f"{message}: the disk is full", hint="free disk space", found=found, **fields)
    if error.errno in PASSING_ERRNOS:
        return Unavailable(f"{message} now", hint="check the disk", found=found, **fields)
    return Invalid(message, hint=hint, found=found, **fields)


def not_installed(what: str, package: str, extra: str = "") -> Invalid:
    """The error where ``what`` needs a package that is not there: one text, one exit code. ``extra``: ours that brings it."""
    ours = f"pip install 'rocketmq-tiered[{extra}]', or make install-{extra} in a checkout"
    return Invalid(
        f"{what} requires the package {package}, which is not installed",
        hint=ours if extra else f"install it where tiered runs, as the documents of {what} say",
    )


def did_you_mean(name: str, known: Collection[str], listed: str) -> str:
    """The hint for a name that is not known: the nearest that is, or else all of them behind ``listed``."""
    near = get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else listed + ", ".join(known)
