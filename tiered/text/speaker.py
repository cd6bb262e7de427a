"""Who speaks for a verb: to people or to programs. Only the speaker that is wanted is imported."""

from __future__ import annotations

from tiered.text.output import Output


def speaker(*, json_output: bool) -> Output:
    """The speaker a verb uses: ``--json`` or people."""
    if json_output:
        from tiered.text.machine import Machine

        return Machine()
    from tiered.text.people import People

    return People()
