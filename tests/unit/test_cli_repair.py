"""What ``tiered repair`` says of what it did, and of what it could not do."""

from __future__ import annotations

import pytest

from tiered.cli.options import output
from tiered.cli.repair import _tell
from tiered.repair.step import Step

PUT = Step(5, "commit/5", "a commit is missing", "checkpoint 9", put="commit/5")
LEFT = Step(6, "commit/6", "a commit is missing", None, advice="restore the key")
FOLDED = Step(7, "commit/7", "a commit is missing", None, fold_again=True)


@pytest.mark.parametrize(
    ("steps", "apply", "title", "note"),
    [
        ([PUT, LEFT], False, "what a repair would do", "nothing was written; --apply does it"),
        ([PUT, FOLDED], True, "repaired", "tiered verify checks the whole"),
        ([PUT, LEFT], True, "repaired: 1 of 2", "tiered verify checks the whole"),
        ([LEFT], True, "nothing could be repaired", "nothing was written: restore these keys"),
    ],
)
def test_what_could_not_be_mended_is_not_called_repaired(
    steps: list[Step], apply: bool, title: str, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _tell(output(False), steps, apply=apply, json=False)
    told = capsys.readouterr()
    assert title in [line.strip() for line in told.out.splitlines()]
    assert note in told.err
