"""Lines of encrypted archives, from chunks to keys."""

from __future__ import annotations

from tests.mutants import Mutant

FORMAT = "tiered/codec/format/encryption.py"
PROVIDER = "tiered/archive/encryption/provider.py"
KEYS = "tiered/archive/encryption/datakeys.py"
WRITER = "tiered/archive/log/writer.py"

BYTES = "tests/unit/test_encryption_format.py"
ARCHIVE = "tests/unit/test_encryption_archive.py"

MUTANTS = (
    Mutant(
        FORMAT,
        "self._cipher.encrypt_into(_nonce(number), chunk",
        "self._cipher.encrypt_into(_nonce(0), chunk",
        f"{BYTES}::test_what_is_encrypted_comes_back_however_it_was_given",
    ),
    Mutant(
        FORMAT,
        'purpose=b"rocketmq-tiered object\\0" + bound',
        'purpose=b"rocketmq-tiered object\\0"',
        f"{BYTES}::test_golden_files_are_written_like_this",
    ),
    Mutant(
        FORMAT,
        "self._open(_nonce(first_chunk + number), piece",
        "self._open(_nonce(number), piece",
        f"{BYTES}::test_chunks_that_changed_places",
    ),
    Mutant(
        FORMAT,
        "bound = self._bound + _without_tag(footer.raw)",
        "bound = self._bound + _without_tag(footer.raw)[:60]",
        f"{BYTES}::test_golden_files_are_read",
    ),
    Mutant(
        PROVIDER,
        "data_key, salt = (None if plain else keys.for_put(epoch)), self._random_bytes(16)",
        "data_key, salt = (None if plain else keys.for_put(epoch)), bytes(16)",
        f"{ARCHIVE}::test_no_nonce_comes_twice",
    ),
    Mutant(
        PROVIDER,
        "            self._check_plain_commit(place, data)\n",
        "            pass\n",
        f"{ARCHIVE}::test_objects_that_changed_places_and_a_plain_one",
    ),
    Mutant(
        PROVIDER,
        "            self._check_end(place, data, total, cipher)\n",
        "            pass\n",
        f"{ARCHIVE}::test_damage_is_named_and_never_read",
    ),
    Mutant(
        PROVIDER,
        "asked = end * STORED_CHUNK_BYTES - at + place.footer_bytes",
        "asked = end * STORED_CHUNK_BYTES - at",
        f"{ARCHIVE}::test_ranges_are_those_of_the_plain_object",
    ),
    Mutant(
        KEYS,
        "if epoch not in paths and paths and epoch > min(paths):",
        "if False:",
        f"{ARCHIVE}::test_a_data_key_that_is_gone",
    ),
    Mutant(
        KEYS,
        "if len(opened) != KEY_BYTES + _PROOF_BYTES or opened[KEY_BYTES:] != proof:",
        "if len(opened) != KEY_BYTES + _PROOF_BYTES:",
        f"{BYTES}::test_a_data_key_that_was_changed_or_moved",
    ),
    Mutant(
        PROVIDER,
        "            found = self._cipher_of(place, self._footer(place, again=True))",
        "            found = cipher",
        f"{ARCHIVE}::test_an_epoch_that_was_opened_twice",
    ),
    Mutant(
        WRITER,
        "                    refuse_plain_writer(self.tip)\n",
        "                    pass\n",
        f"{ARCHIVE}::test_a_writer_without_a_key_stops_at_the_claim",
    ),
)
