"""Membership of read nodes: when silence means gone, who has a name, what damage does."""

from __future__ import annotations

from tests.mutants import Mutant

_CONTRACT = "tests/contract/test_membership_contract.py"
_BUCKET = "tests/unit/test_membership_bucket.py"

MUTANTS = (
    Mutant(
        "tiered/membership/bucket.py",
        "        self._looked_at = None\n\n    def unrenewed",
        "        pass\n\n    def unrenewed",
        f"{_BUCKET}::test_of_a_minute_in_which_the_bucket_answers_503_nothing_counts",
    ),
    Mutant(
        "tiered/membership/bucket.py",
        "min(max(now - self._looked_at, 0.0), self._most_gap)",
        "max(now - self._looked_at, 0.0)",
        f"{_BUCKET}::test_who_was_asleep_has_seen_nobody_silent",
    ),
    Mutant(
        "tiered/membership/bucket.py",
        "            if known is None or known.number != number:\n",
        "            if known is None:\n",
        f"{_CONTRACT}::test_who_is_silent_is_gone_and_who_renews_stays",
    ),
    Mutant(
        "tiered/membership/bucket.py",
        "            elif unrenewed >= gone_after(known.card):\n",
        "            elif False:\n",
        f"{_CONTRACT}::test_who_is_silent_is_gone_and_who_renews_stays",
    ),
    Mutant(
        "tiered/membership/bucket.py",
        "        if numbers and numbers[-1] > self._number:\n",
        "        if False:\n",
        f"{_BUCKET}::test_who_slept_while_its_name_went_on_hears_of_it_though_its_next_number_is_free_again",
    ),
    Mutant(
        "tiered/membership/bucket.py",
        "        if silent < holds:\n",
        "        if False:\n",
        f"{_CONTRACT}::test_the_second_of_a_name_is_refused_until_the_first_is_silent",
    ),
    Mutant(
        "tiered/membership/bucket.py",
        "        except Corrupt as error:\n            return _Known(number, None, error)\n",
        "        except ZeroDivisionError as error:\n            return _Known(number, None, error)\n",
        f"{_CONTRACT}::test_what_one_node_left_damaged_concerns_nobody_else",
    ),
    Mutant(
        "tiered/membership/bucket.py",
        "            self._delete(number for number in self._numbers() if number <= self._number)\n",
        "            self._delete(self._numbers())\n",
        f"{_BUCKET}::test_a_name_that_went_on_unnoticed_is_not_taken_along",
    ),
    Mutant(
        "tiered/archive/log/identity.py",
        "ProbeKey | KeyValueKey | LeaseKey",
        "ProbeKey | KeyValueKey",
        f"{_BUCKET}::test_leases_make_no_archive_and_hinder_none",
    ),
)
