"""Membership of read nodes: when silence means gone, who has a name, what damage does."""

from __future__ import annotations

from tests.mutants import Mutant

_CONTRACT = "tests/contract/test_membership_contract.py"
_ETCD = "tests/contract/test_membership_etcd.py"
_ACCESS = "tests/contract/test_membership_etcd_access.py"
_KUBERNETES = "tests/unit/test_membership_kubernetes.py"
_BUCKET = "tests/unit/test_membership_bucket.py"

MUTANTS = (
    Mutant(
        "tiered/membership/sightings.py",
        "        self._looked_at = None\n\n    def unrenewed",
        "        pass\n\n    def unrenewed",
        f"{_BUCKET}::test_of_a_minute_in_which_the_bucket_answers_503_nothing_counts",
    ),
    Mutant(
        "tiered/membership/sightings.py",
        "min(max(now - self._looked_at, 0.0), self._most_gap)",
        "max(now - self._looked_at, 0.0)",
        f"{_BUCKET}::test_who_was_asleep_has_seen_nobody_silent",
    ),
    Mutant(
        "tiered/membership/sightings.py",
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
    Mutant(
        "tiered/membership/etcd.py",
        '        if not self._ask("kv/txn", {"compare": [mine], "success": then}).get("succeeded"):\n',
        '        if self._ask("kv/txn", {"compare": [mine], "success": then}) is None:\n',
        f"{_CONTRACT}::test_a_process_that_starts_again_where_it_was_has_its_name_at_once",
    ),
    Mutant(
        "tiered/membership/etcd.py",
        "            self._take_again()\n            return\n",
        "            return\n",
        f"{_ETCD}::test_a_lease_that_etcd_ended_is_taken_again_and_a_name_that_went_is_not",
    ),
    Mutant(
        "tiered/membership/etcd.py",
        '"start_revision": str(self._revision + 1)',
        '"start_revision": "0"',
        f"{_ETCD}::test_what_changed_before_the_watch_began_ends_it_too",
    ),
    Mutant(
        "tiered/membership/kubernetes.py",
        '.get("holderIdentity") != card.process:\n',
        '.get("holderIdentity") is None:\n',
        f"{_KUBERNETES}::test_a_lease_lost_while_draining_leaves_the_new_one_alone",
    ),
    Mutant(
        "tiered/membership/kubernetes.py",
        '"preconditions": {"resourceVersion": version}',
        '"preconditions": {}',
        f"{_KUBERNETES}::test_a_lease_lost_while_draining_leaves_the_new_one_alone",
    ),
    Mutant(
        "tiered/membership/kubernetes.py",
        "            self._seen.failed()\n",
        "            pass\n",
        f"{_KUBERNETES}::test_of_a_time_without_answers_nothing_counts",
    ),
    Mutant(
        "tiered/membership/etcdclient.py",
        "        if self._token and any(ended in _said(answer) for ended in _ENDED):\n",
        "        if False:\n",
        f"{_ACCESS}::test_tokens_that_end_are_renewed_and_nobody_notices",
    ),
    Mutant(
        "tiered/membership/etcdclient.py",
        'headers = {"Authorization": self._token} if self._token else None',
        "headers = None",
        f"{_ACCESS}::test_a_node_and_a_gateway_that_may",
    ),
    Mutant(
        "tiered/membership/etcdclient.py",
        "ssl.create_default_context(cafile=settings.ca or None)",
        "ssl._create_unverified_context()",
        f"{_ACCESS}::test_who_may_not_hears_why_and_never_the_password",
    ),
    Mutant(
        "tiered/membership/etcdclient.py",
        'hint = "set etcd.user and etcd.password to those of a user of etcd"',
        "hint = self._access.password",
        f"{_ACCESS}::test_who_may_not_hears_why_and_never_the_password",
    ),
)
