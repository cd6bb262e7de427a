"""One suite over every driver of the port that wraps data keys."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.encryption import KEY, OTHER_KEY
from tiered.archive.encryption.wrapping import WrappingKey, new_key_text, wrapping_key
from tiered.errors import Invalid, Refused, TieredError, Unavailable
from tiered.settings import Encryption

SECRET = bytes(range(48))
SERVICE = """import base64, sys
given = base64.b64decode(sys.stdin.read())
key = bytes.fromhex(open(sys.argv[1]).read())
out = bytes(a ^ b for a, b in zip(given, key * 9))
sys.stdout.write(base64.b64encode(out).decode() + "\\n")
"""
"""A key service of three lines: it proves nothing, and wraps."""

Make = Callable[[str], WrappingKey]


@pytest.fixture(params=["file", "environment", "command"])
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A wrapping key by its text."""

    def made(text: str) -> WrappingKey:
        if request.param == "file":
            (tmp_path / "key").write_text(f"# newest first\n{text}\n")
            return wrapping_key(Encryption(key_file=str(tmp_path / "key")))
        if request.param == "environment":
            monkeypatch.setenv("ARCHIVE_KEY", text)
            return wrapping_key(Encryption(key_env="ARCHIVE_KEY"))
        (tmp_path / "service.py").write_text(SERVICE)
        (tmp_path / "key").write_text("5a" * 32 if text == KEY else "a5" * 32)
        return wrapping_key(
            Encryption(key_command=f"'{sys.executable}' '{tmp_path}/service.py' '{tmp_path}/key'")
        )

    return made


def test_what_is_wrapped_is_unwrapped(make: Make) -> None:
    wrapping = make(KEY)
    wrapped = wrapping.wrap(SECRET)
    assert SECRET not in wrapped
    assert wrapping.unwrap(wrapped, wrapping.key_id()) == SECRET
    assert make(KEY).unwrap(wrapped, wrapping.key_id()) == SECRET, "in another process too"


def test_an_unknown_key_is_named(make: Make) -> None:
    wrapping = make(KEY)
    with pytest.raises(Refused, match="encrypted with another key") as error:
        wrapping.unwrap(b"whatever", "feedfeedfeedfeed")
    assert "feedfeedfeedfeed" in str(error.value)


def test_a_key_is_in_no_text(make: Make) -> None:
    wrapping = make(KEY)
    said = f"{wrapping!r} {wrapping.key_id()} {vars(wrapping)}"
    raw = base64.b64decode(KEY)
    for secret in (KEY, raw.hex(), repr(raw)):
        assert secret not in said


# ---- keys at hand


@pytest.fixture(params=["file", "environment"])
def local(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    def made(text: str) -> WrappingKey:
        if request.param == "file":
            (tmp_path / "key").write_text(text)
            return wrapping_key(Encryption(key_file=str(tmp_path / "key")))
        monkeypatch.setenv("ARCHIVE_KEY", text)
        return wrapping_key(Encryption(key_env="ARCHIVE_KEY"))

    return made


def test_the_first_key_wraps_and_all_unwrap(local: Make) -> None:
    old = local(KEY)
    wrapped, old_id = old.wrap(SECRET), old.key_id()
    new = local(f"{OTHER_KEY} {KEY}")
    assert new.key_id() != old_id
    assert new.unwrap(wrapped, old_id) == SECRET
    with pytest.raises(Refused) as error:
        local(OTHER_KEY).unwrap(wrapped, old_id)
    assert old_id in str(error.value)
    assert local(base64.b64decode(KEY).hex()).key_id() == old_id, (
        "hexadecimal is another writing of the same key"
    )


def test_wrapped_bytes_that_were_changed(local: Make) -> None:
    wrapping = local(KEY)
    wrapped = wrapping.wrap(SECRET)
    assert wrapping.wrap(SECRET) != wrapped, "no nonce comes twice"
    for at in range(len(wrapped)):
        changed = bytearray(wrapped)
        changed[at] ^= 1
        with pytest.raises(Refused, match="changed after it was wrapped"):
            wrapping.unwrap(bytes(changed), wrapping.key_id())
    with pytest.raises(Refused):
        wrapping.unwrap(b"", wrapping.key_id())


@pytest.mark.parametrize(
    "text", ["", "# nothing", "tooshort", "A" * 43, f"{KEY} not-a-key-at-all", "0g" * 32]
)
def test_what_is_no_key_is_not_repeated(local: Make, text: str) -> None:
    with pytest.raises(Invalid, match="does not hold keys") as error:
        local(text).wrap(SECRET)
    assert all(word not in str(error.value) for word in text.split() if len(word) > 3 and word != "nothing")
    assert "tiered key new" in str(error.value)


def test_a_fresh_key_is_one(local: Make) -> None:
    wrapping = local(new_key_text(os.urandom))
    assert wrapping.unwrap(wrapping.wrap(SECRET), wrapping.key_id()) == SECRET


def test_what_is_not_there(tmp_path: Path) -> None:
    for settings, named in (
        (Encryption(key_file=str(tmp_path / "none")), "encryption.key_file"),
        (Encryption(key_env="NO_SUCH_VARIABLE"), "encryption.key_env"),
        (Encryption(key_command="/no/such/program"), "encryption.key_command"),
        (Encryption(key_command="'unclosed"), "encryption.key_command"),
    ):
        with pytest.raises(Invalid) as error:
            wrapping_key(settings).wrap(SECRET)
        assert named in str(error.value)


def test_only_one_may_be_named() -> None:
    with pytest.raises(Invalid, match="only one of") as error:
        Encryption(key_file="a", key_env="b")
    assert error.value.fields["found"] == "encryption.key_file, encryption.key_env"


# ---- a key service


@pytest.mark.parametrize(
    ("script", "kind", "said"),
    [
        ("import sys; sys.exit(sys.stdin.read())", Unavailable, "failed"),
        ("print('not base64!')", Invalid, "did not answer base64"),
        ("pass", Invalid, "did not answer base64"),
        ("import time; time.sleep(30)", Unavailable, "did not end in time"),
    ],
    ids=["fails and tells the key", "speaks", "is silent", "hangs"],
)
def test_a_key_service_that_fails(script: str, kind: type[TieredError], said: str) -> None:
    wrapping = wrapping_key(
        Encryption(key_command=f'"{sys.executable}" -c "{script}"', command_timeout_ms=1000)
    )
    with pytest.raises(kind, match=said) as error:
        wrapping.wrap(SECRET)
    assert base64.b64encode(SECRET).decode() not in str(error.value), "what it printed is not shown"


def test_without_the_package_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(Invalid, match="not installed") as error:
        wrapping_key(Encryption(key_file="x"))
    assert "rocketmq-tiered[encryption]" in str(error.value)
