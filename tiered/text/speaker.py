"""Who speaks for a verb: to people or to programs. Only the speaker that is wanted is imported."""

from __future__ import annotations

from tiered.text.output import Output


def speaker(*, json_output: bool, json_lines: bool = False) -> Output:
    """The speaker a verb uses: ``--json``, ``--json-lines`` or people."""
    if json_output or json_lines:
        from tiered.text.machine import Machine

        return Machine(lines=json_lines)
    from tiered.text.people import People

    return People()
