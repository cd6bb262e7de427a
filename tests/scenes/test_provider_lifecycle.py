"""Lifecycle rules of a bucket: which would take what an archive needs, and how that is told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.s3server import S3Server
from tiered.cli.doctor import _lifecycle
from tiered.clock import ManualClock
from tiered.errors import Denied, Invalid, TieredError
from tiered.provider.memory import MemoryProvider
from tiered.provider.open import open_provider
from tiered.provider.s3 import S3Provider
from tiered.provider.s3lifecycle import harmful_rules, must_be_restored
from tiered.settings import Store

ROOT = "root/DefaultCluster/broker-a/"


def rule(**options: Any) -> dict[str, Any]:
    return {"ID": "r", "Status": "Enabled", "Expiration": {"Days": 30}, "Filter": {"Prefix": ""}, **options}


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, ["rule r deletes objects after 30 days below the whole bucket"]),
        ({"Filter": {}, "ID": None}, ["rule without a name deletes objects after 30 days below the whole bucket"]),
        ({"Filter": {"Prefix": "root/"}}, ["rule r deletes objects after 30 days below root/"]),
        ({"Filter": {"And": {"Prefix": ROOT + "commit/", "ObjectSizeGreaterThan": 9}}},
         [f"rule r deletes objects after 30 days below {ROOT}commit/"]),
        ({"Filter": None, "Prefix": "root"}, ["rule r deletes objects after 30 days below root"]),
        ({"Expiration": {"Date": "2030-01-01"}}, ["rule r deletes objects on 2030-01-01 below the whole bucket"]),
        ({"Expiration": None, "Transitions": [{"StorageClass": "DEEP_ARCHIVE", "Days": 9}, {"StorageClass": "STANDARD_IA"}]},
         ["rule r moves objects to DEEP_ARCHIVE after 9 days below the whole bucket"]),
        ({"Status": "Disabled"}, []),
        ({"Filter": {"Prefix": "other/"}}, []),
        ({"Filter": {"Prefix": ROOT + "probe/"}}, []),
        ({"Filter": {"Tag": {"Key": "a", "Value": "b"}}}, []),
        ({"Filter": {"And": {"Prefix": "", "Tags": [{"Key": "a", "Value": "b"}]}}}, []),
        ({"Expiration": {"ExpiredObjectDeleteMarker": True}}, []),
        ({"Expiration": None, "NoncurrentVersionExpiration": {"NoncurrentDays": 1}}, []),
        ({"Expiration": None, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}}, []),
    ],
)  # fmt: skip
def test_which_rules_harm(options: dict[str, Any], found: list[str]) -> None:
    assert harmful_rules([rule(**options)], ROOT) == found


def test_the_archive_classes_of_other_vendors_are_seen() -> None:
    names = [
        "GLACIER",
        "DEEP_ARCHIVE",
        "ARCHIVE",
        "COLD_ARCHIVE",
        "DeepColdArchive",
        "COLD",
        "GLACIER_FLEXIBLE_RETRIEVAL",
    ]
    assert [name for name in names if not must_be_restored(name)] == []
    names = [
        "STANDARD",
        "STANDARD_IA",
        "GLACIER_IR",
        "INTELLIGENT_TIERING",
        "ONEZONE_IA",
        "IA",
        "NEARLINE",
        "COLDLINE",
    ]
    assert [name for name in names if must_be_restored(name)] == []


def test_doctor_warns_of_a_rule_of_a_bucket(moto: S3Server) -> None:
    bucket, client = moto.bucket(), moto.client()
    store = open_provider(moto.url(bucket, "root"), moto.store(), ManualClock())
    keys = ROOT.removeprefix("root/")
    assert _lifecycle(store, keys)[:2] == ("lifecycle rules", "good")
    rules = [rule(ID="tidy", Filter={"Prefix": "root/"}), rule(ID="old", Filter={"Prefix": "logs/"})]
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})
    name, result, said, fix = _lifecycle(store, keys)
    assert (name, result, said) == (
        "lifecycle rules",
        "BAD",
        "rule tidy deletes objects after 30 days below root/",
    )
    assert "remove these rules" in fix
    client.close()
    store.close()


def test_without_the_right_to_ask_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    made = S3Provider("bucket", "root", Store(), ManualClock())
    answers: list[TieredError] = []

    def call(verb: str, key: str, operation: str, **arguments: Any) -> Any:
        raise answers[0]

    monkeypatch.setattr(made, "_call", call)
    answers.append(Denied("the store refuses access", found="403 AccessDenied"))
    name, result, said, fix = _lifecycle(made, "c/b/")
    assert (name, result) == ("lifecycle rules", "unknown")
    assert "refuses access" in said
    assert "s3:GetLifecycleConfiguration" in fix
    for code in ("404 NoSuchLifecycleConfiguration", "501 NotImplemented"):
        answers[:] = [Invalid("the store refuses to get", found=code)]
        assert _lifecycle(made, "c/b/")[1] == "good"


def test_a_store_without_rules_of_its_own() -> None:
    assert _lifecycle(MemoryProvider("", ManualClock()), "c/b/")[1] == "good"
