"""Tables of other engines: what keeps a file from being in one twice, missing, or taken from somebody else."""

from __future__ import annotations

from tests.mutants import Mutant

_ICEBERG = "tiered/table/iceberg.py"
_TESTS = "tests/scenes/test_table_iceberg.py"

MUTANTS = (
    Mutant(
        _ICEBERG,
        "            name = hashed_name(topic)\n",
        "            return\n",
        f"{_TESTS}::test_twins_where_a_catalog_keeps_names_in_lower_case",
    ),
    Mutant(
        _ICEBERG,
        '    "commit.retry.num-retries": "0",\n',
        '    "commit.retry.num-retries": "4",\n',
        f"{_TESTS}::test_another_process_that_is_faster_does_not_double_a_file",
    ),
    Mutant(
        _ICEBERG,
        '        if any(found.get(name, "") != value for name, value in whole.items()):\n',
        "        if False:\n",
        f"{_TESTS}::test_a_table_of_another_topic_or_a_newer_program_is_refused",
    ),
    Mutant(
        _ICEBERG,
        "            if self._ahead(state, wanted):\n",
        "            if False:\n",
        f"{_TESTS}::test_a_process_that_knows_less_leaves_a_table_alone",
    ),
    Mutant(
        _ICEBERG,
        "        if foreign is not None:\n",
        "        if False:\n",
        f"{_TESTS}::test_a_table_that_another_program_wrote_to_is_refused",
    ),
    Mutant(
        _ICEBERG,
        "                deletes.append(file.file_path)\n",
        "                pass\n",
        f"{_TESTS}::test_a_table_in_which_another_program_hides_rows_is_refused",
    ),
    Mutant(
        _ICEBERG,
        "        if changed is not None:\n",
        "        if False:\n",
        f"{_TESTS}::test_a_table_whose_columns_another_program_changed_is_refused",
    ),
    Mutant(
        "tiered/table/columns.py",
        "            if field.field_id != was.field_id:\n",
        "            if False:\n",
        f"{_TESTS}::test_a_table_whose_column_was_dropped_and_given_again_is_refused",
    ),
    Mutant(
        "tiered/table/keeping.py",
        "        check_names(kept)\n",
        "        pass\n",
        "tests/scenes/test_table_orders.py"
        "::test_an_order_of_the_bucket_with_a_name_that_leads_elsewhere_is_said_and_not_followed",
    ),
    Mutant(
        _ICEBERG,
        "            if file.file_path in present:\n",
        "            if False:\n",
        f"{_TESTS}::test_a_file_that_is_in_a_table_twice_is_in_it_once_again",
    ),
    Mutant(
        _ICEBERG,
        "                    self._commit(table, batch, gone, wanted, complete=not missing and not absent)\n",
        "                    self._commit(table, batch, gone, wanted, complete=True)\n",
        f"{_TESTS}::test_a_file_that_is_gone_is_told_and_the_others_are_shown"
        f" {_TESTS}::test_killed_anywhere_the_next_round_brings_it_to_an_end",
    ),
    Mutant(
        "tiered/table/shown.py",
        "        if item.level == SEGMENT_LEVEL and item.path and item.references and item.retired_by is None\n",
        "        if item.path and item.references and item.retired_by is None\n",
        "tests/unit/test_table_shown.py",
    ),
    Mutant(
        "tiered/table/keeping.py",
        "            if self.shows(topic) and not emptied.isdisjoint(mine):\n",
        "            if name in emptied:\n",
        f"{_TESTS}::test_files_that_went_go_where_a_catalog_keeps_names_in_lower_case",
    ),
    Mutant(
        "tiered/cli/table.py",
        "    if troubles and json:  # machines get no notes\n",
        "    if False:\n",
        "tests/contract/test_table_catalogs.py::test_foreign[glue]",
    ),
    Mutant(
        "tiered/table/rest.py",
        '        kwargs["timeout"] = kwargs.get("timeout") or self._seconds\n',
        "        pass\n",
        "tests/scenes/test_table_orders.py::test_a_rest_catalog_that_has_gone_silent_is_not_waited_for_for_ever",
    ),
    Mutant(
        "tiered/table/glue.py",
        "    return {GLUE_MAX_RETRIES: retries, BOTOCORE_SESSION: session}\n",
        "    return {BOTOCORE_SESSION: session}\n",
        "tests/scenes/test_table_orders.py::test_a_glue_catalog_that_is_away_is_asked_a_few_times_and_its_other_tables_do_not_wait",
    ),
    Mutant(
        "tiered/table/keeping.py",
        "            if unreachable:\n",
        "            if False:\n",
        "tests/scenes/test_table_orders.py::test_a_glue_catalog_that_is_away_is_asked_a_few_times_and_its_other_tables_do_not_wait",
    ),
)
