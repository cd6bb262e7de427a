"""Where a POSIX archive may write, what a store without times may do, what a start asks of a store, what keys cost."""

from __future__ import annotations

from tests.mutants import Mutant

_MOUNT = "tests/unit/test_provider_mount.py"
_S3 = "tests/unit/test_provider_s3_requests.py"
_LIES = "tests/unit/test_provider_lies.py"
_ANSWERS = "tiered/provider/s3answers.py"

MUTANTS = (
    Mutant(
        "tiered/archive/log/localfiles.py",
        "        _check_names(directory, known_url, url)\n",
        "",
        "tests/unit/test_archive_identity.py -k renamed_broker",
    ),
    Mutant(
        "tiered/archive/log/beat.py",
        "        return self.key.ended_at == head.commit_id",
        "        return self.key.ended_at is not None",
        "tests/unit/test_archive_beat.py -k goodbye_holds",
    ),
    Mutant(
        "tiered/archive/log/beat.py",
        "        self._log.check_next(head)\n",
        "",
        "tests/unit/test_archive_beat.py -k notices_that_it_was_fenced",
    ),
    Mutant(
        "tiered/opening/claim.py",
        "            if lives and not self.stands_by:",
        "            if False:",
        "tests/unit/test_archive_beat.py -k command_is_refused",
    ),
    Mutant(
        "tiered/archive/log/writer.py",
        "            seen_ms, now_ms = max(seen_ms, beat.stored.last_modified_ms)",
        "            seen_ms, now_ms = min(seen_ms, beat.stored.last_modified_ms)",
        "tests/unit/test_archive_beat.py -k alive_for_as_long",
    ),
    Mutant(
        "tiered/provider/posixplace.py",
        "            descriptor = os.open(path, _DIRECTORY)\n        except FileNotFoundError",
        "            os.makedirs(path, exist_ok=True)\n            descriptor = os.open(path, _DIRECTORY)\n"
        "        except FileNotFoundError",
        f"{_MOUNT} -k nothing_is_absent",
    ),
    Mutant(
        "tiered/provider/posixplace.py",
        "        if not guard.same(data):",
        "        if False:",
        f"{_MOUNT} -k another_archive",
    ),
    Mutant(
        "tiered/provider/posixplace.py",
        "        if anchor.guarded and os.fstat(",
        "        if False and os.fstat(",
        f"{_MOUNT} -k disk_below",
    ),
    Mutant(
        "tiered/provider/posix.py",
        "                    self._check_needs(key, target.anchor)\n",
        "",
        f"{_MOUNT} -k lacks_the_commit_before",
    ),
    Mutant(
        "tiered/archive/log/writer.py",
        "                    if lost in objects:\n                        objects[lost]()\n",
        "                    if lost in objects:\n                        pass\n",
        f"{_MOUNT} -k older_copy",
    ),
    Mutant(
        "tiered/archive/log/reader.py",
        "        guard(provider, keys.identity, partial(is_identity_of, identity.archive_id))\n",
        "",
        f"{_MOUNT} -k nothing_is_absent",
    ),
    Mutant(
        "tiered/provider/open.py",
        "    return Retrying(\n        provider,\n",
        "    return Retrying(\n        each_try(open_driver(url, store, clock)),\n",
        "tests/unit/test_provider_wrap.py::test_a_retry_waits_for_its_turn_as_any_request",
    ),
    Mutant(
        "tiered/provider/open.py",
        "    if observer is not None:\n",
        "    if False:\n",
        "tests/unit/test_provider_wrap.py::test_every_try_is_counted_by_its_own_outcome_and_its_own_time",
    ),
    Mutant(
        "tiered/provider/probe.py",
        "        tidy(self._provider, self._base)\n",
        "",
        "tests/scenes/test_cli_doctor.py::test_nothing_is_left_behind",
    ),
    Mutant(
        "tiered/source/hold.py",
        "            for made in missing:\n                os.rmdir(made)\n",
        "            pass\n",
        "tests/scenes/test_cli_doctor.py::test_nothing_is_left_behind",
    ),
    Mutant(
        "tiered/daemon/probed.py",
        "not 0 <= now_ms - known.probed_ms < settings.archive.probe_interval_ms",
        "False",
        "tests/unit/test_daemon_probed.py -k month",
    ),
    Mutant(
        "tiered/daemon/probed.py",
        "json.dumps([settings.archive.url, told, __version__], sort_keys=True)",
        "json.dumps([settings.archive.url, __version__], sort_keys=True)",
        "tests/unit/test_daemon_probed.py -k endpoint",
    ),
    Mutant(
        "tiered/archive/log/reader.py",
        "        if total is None and len(data) < TAIL_BYTES:",
        "        if total is None:",
        "tests/unit/test_provider_fsspec.py -k ten_thousand",
    ),
    Mutant(
        "tiered/provider/fsspec.py",
        "        if first < 0 and self._protocol not in SUFFIXES:",
        "        if False:",
        "tests/unit/test_provider_fsspec.py -k no_suffix",
    ),
    Mutant(
        "tiered/provider/fsspec.py",
        "            if create_only and self._is_there(key):",
        "            if False:",
        "tests/unit/test_provider_fsspec.py -k hangs_up",
    ),
    Mutant(
        "tiered/archive/log/writer.py",
        "            return Sighting(max(0, takeover_wait_ms - self._watched_ms(sign)))",
        "            return Sighting(takeover_wait_ms)",
        "tests/unit/test_archive_log.py -k is_watched",
    ),
    Mutant(
        "tiered/archive/log/writer.py",
        "        ask_clock(provider, keys.identity)",
        "        pass",
        "tests/unit/test_archive_log.py -k file_servers_clock",
    ),
    Mutant(
        "tiered/codec/record/properties.py",
        "_PASS_BYTES = 1 << 18",
        "_PASS_BYTES = 1 << 40",
        "tests/unit/test_key_memory.py -k costs_some_ten",
    ),
    Mutant(
        "tiered/write/preparer.py",
        "self._too_many(part, _SPACE, self._settings.max_flush_keys) or (",
        "(",
        "tests/unit/test_key_memory.py -k too_many",
    ),
    Mutant(
        "tiered/provider/posixsweep.py",
        "        if now_ms - written_ms < OLD_MS:",
        "        if now_ms < written_ms:",
        "tests/unit/test_provider_posix.py -k old_unfinished",
    ),
    Mutant(
        "tiered/provider/posix.py",
        "        self.ask_clock(f\"{prefix}/{TEMP_PREFIX.strip('.')}\")\n",
        "",
        "tests/unit/test_provider_posix.py -k old_unfinished",
    ),
    Mutant(
        "tiered/daemon/writepath.py",
        '            Service("sweeper", sweeper.step, parts.clock, metrics=parts.metrics),\n',
        "",
        "tests/scenes/test_app.py -k dead_writers",
    ),
    Mutant(
        "tiered/provider/s3client.py",
        '    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=time_of)\n',
        "",
        f"{_S3} -k without_the_sdks_own_parser",
    ),
    Mutant(
        "tiered/provider/s3.py",
        'MultipartUpload={"Parts": done}, **at, **condition\n',
        'MultipartUpload={"Parts": done}, **at\n',
        f"{_S3} -k create_only_at_its_completion",
    ),
    Mutant(
        "tiered/provider/s3.py",
        "            if status_of(error.response) != 416:\n",
        "            if True:\n",
        f"{_S3} -k behind_the_end",
    ),
    Mutant(
        "tiered/provider/s3errors.py",
        '        "SlowDown",\n',
        "",
        "tests/unit/test_provider_parts.py -k test_s3_codes",
    ),
    Mutant(
        _ANSWERS,
        '        if "html" in (headers',
        '        if False and "html" in (headers',
        f"{_LIES} -k somebody_else",
    ),
    Mutant(
        _ANSWERS,
        "            if not proven(headers) or (operation",
        "            if False and (operation",
        f"{_LIES} -k somebody_else",
    ),
    Mutant(
        _ANSWERS,
        ' or (operation == "UploadPart" and not headers.get("ETag")):',
        ":",
        f"{_LIES} -k somebody_else",
    ),
    Mutant(
        _ANSWERS,
        "            if root != _ROOTS[operation]:",
        "            if False:",
        f"{_LIES} -k somebody_else",
    ),
    Mutant(
        _ANSWERS,
        "            _require_error(operation, status, headers, body)\n",
        "            pass\n",
        f"{_LIES} -k somebody_else",
    ),
    Mutant(
        _ANSWERS,
        "        elif status == 200 and body and not identified(headers):",
        "        elif False:",
        f"{_LIES} -k somebody_else",
    ),
    Mutant(
        _ANSWERS,
        "        elif answer in self._named:",
        "        elif False:",
        f"{_LIES} -k answers_of_stores",
    ),
    Mutant(
        _ANSWERS,
        "        elif status in _BUILT_ON:",
        "        elif False:",
        f"{_LIES} -k answers_of_stores",
    ),
    Mutant(
        _ANSWERS,
        "    if sizes != [length]:",
        "    if False:",
        f"{_LIES} -k no_bytes_are_an_object",
    ),
    Mutant(
        _ANSWERS,
        "    if begin < end:",
        "    if False:",
        f"{_LIES} -k range_that_is_there",
    ),
    Mutant(
        "tiered/archive/log/identity.py",
        "        _require_the_stores(provider, keys.identity, data)\n",
        "",
        f"{_LIES} -k identity_of_somebody_else",
    ),
    Mutant(
        "tiered/daemon/parts.py",
        "    expect_as_probed(provider, settings, state)\n",
        "",
        "tests/scenes/test_store_lies.py -k absence_at_a_start",
    ),
    Mutant(
        _ANSWERS,
        "    if status not in (200, 206):",
        "    if False:",
        f"{_LIES} -k somebody_else",
    ),
    Mutant(
        _ANSWERS,
        '    if not proven(headers) and not headers.get("Last-Modified"):',
        "    if False:",
        f"{_LIES} -k somebody_else",
    ),
    Mutant(
        _ANSWERS,
        '    if coding not in ("identity", "aws-chunked"):',
        "    if False:",
        f"{_LIES} -k somebody_else",
    ),
    Mutant(
        _ANSWERS,
        "    if not counted and (\n",
        "    if False and (\n",
        f"{_LIES} -k somebody_else",
    ),
    Mutant(
        _ANSWERS,
        '    elif not _root(body).startswith("Error") and not (',
        "    elif False and not (",
        f"{_LIES} -k somebody_else",
    ),
    Mutant(
        _ANSWERS,
        "        if status < 400 and not identified(headers)",
        "        if False and not identified(headers)",
        f"{_LIES} -k somebody_else",
    ),
    Mutant(
        _ANSWERS,
        "    if came != (begin, end) and came != (0, total):",
        "    if False:",
        f"{_LIES} -k were_not_asked_for",
    ),
    Mutant(
        _ANSWERS,
        "    if len(data) != came[1] - came[0]:",
        "    if False:",
        f"{_LIES} -k were_not_asked_for",
    ),
    Mutant(
        _ANSWERS,
        "        if said is None:",
        "        if False:",
        f"{_LIES} -k were_not_asked_for",
    ),
    Mutant(
        _ANSWERS,
        '        if not entry["Key"].startswith(asked["Prefix"]):',
        "        if False:",
        f"{_LIES} -k listing_that_does_not",
    ),
    Mutant(
        _ANSWERS,
        "    if not following or following == asked",
        "    if following == asked",
        f"{_LIES} -k later_page",
    ),
    Mutant(
        _ANSWERS,
        ' or following == asked.get(name.removeprefix("Next")):',
        ":",
        f"{_LIES} -k later_page",
    ),
    Mutant(
        "tiered/provider/s3ranges.py",
        "            if response.status_code not in (200, 206):",
        "            if response.status_code >= 400:",
        f"{_LIES} -k redirect_says",
    ),
    Mutant(
        "tiered/provider/s3ranges.py",
        '                self._judge.judge("GetObject", 404, response.headers, body)\n',
        "",
        f"{_LIES} -k one_request",
    ),
    Mutant(
        "tiered/provider/s3ranges.py",
        '            self._judge.judge("GetObject", response.status_code, response.headers, None)\n',
        "",
        f"{_LIES} -k so_or_unknown",
    ),
    Mutant(
        "tiered/provider/s3client.py",
        '    client.meta.events.register("before-parse.s3", answers.heard)\n',
        "",
        f"{_LIES} -k page_is_told",
    ),
    Mutant(
        "tiered/provider/s3.py",
        "        if stated is None:  # all",
        "        if False:  # all",
        f"{_LIES} -k another_form",
    ),
)
