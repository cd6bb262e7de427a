"""Which runs are merged again."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tiered.archive.rewrite.mergeplan import due_runs


@pytest.mark.parametrize("seed", range(40))
def test_what_is_due_is_the_longest_end_that_grows_enough(seed: int) -> None:
    chance = random.Random(seed)
    growth = chance.choice([2, 3, 10])
    stretches = [
        [chance.choice([1, 7, 70, 700]) for _ in range(chance.randint(1, 30))]
        for _ in range(chance.randint(1, 9))
    ]
    wanted = []
    for number, sizes in enumerate(stretches):
        begins = [i for i in range(len(sizes)) if sum(sizes[i:]) >= growth * max(sizes[i:])]
        first = begins[0] if begins else len(sizes)
        wanted += [(number, i) for i in range(first, len(sizes))]
    size = np.array([size for sizes in stretches for size in sizes])
    stretch = np.repeat(np.arange(len(stretches)), [len(sizes) for sizes in stretches])
    place = np.concatenate([np.arange(len(sizes)) for sizes in stretches])
    due = due_runs(size, stretch, growth)
    assert list(zip(stretch[due].tolist(), place[due].tolist(), strict=True)) == wanted
