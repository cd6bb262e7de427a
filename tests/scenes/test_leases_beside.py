"""Leases of read nodes and beats of writers lie beside an archive: who walks over it neither takes them for damage nor
deletes them."""

from __future__ import annotations

from pathlib import Path

from tests.kit.assemble import KEYS
from tests.kit.collecting import Sweeping
from tests.kit.fetchscene import scene
from tests.kit.memberships import card
from tests.kit.merging import merge_all, spread
from tests.kit.scrubbing import Scrubbing, paths
from tests.scenes.test_snapshots_beside import verified
from tiered.archive.keys import BEAT_PREFIX, LEASE_PREFIX
from tiered.membership.bucket import BucketMembership


def test_whoever_walks_over_the_archive_leaves_them_alone(tmp_path: Path) -> None:
    with scene(tmp_path) as made:
        spread(made, 3)
        merge_all(made.daemon)
        before = verified(made.provider)
        BucketMembership(made.provider, KEYS, made.clock, 1.0).announce(card())
        damaged = KEYS.lease("sick", 1)
        made.provider.put(damaged, [b"damaged"])
        made.provider.put(KEYS.beat(0, 7), [b"damaged"])
        made.provider.put(KEYS.beat(9, 1, bytes(16)), [b"damaged"])
        assert verified(made.provider) == before
        sweeping = Sweeping.of(made)
        sweeping.count(sweeping.gc)
        sweeping.after_grace()
        assert (
            len([path for path in paths(made.provider) if path.startswith((LEASE_PREFIX, BEAT_PREFIX))]) == 4
        )
        looking = Scrubbing.of(made)
        looking.rest()
        assert looking.damaged() == {}
        assert looking.notes.listing.notes.get("foreign", 0) == 0


def test_in_an_encrypted_archive_they_are_plain(tmp_path: Path) -> None:
    """Nodes and gateways need no key to find each other; docs say so."""
    with scene(tmp_path, encrypted=True) as made:
        BucketMembership(made.provider, KEYS, made.clock, 1.0).announce(card())
        (path,) = [path for path in paths(made.provider) if path.startswith(LEASE_PREFIX)]
        assert b'"address": "10.0.0.1:10006"' in bytes(made.provider.get(KEYS.key(path)).data)
