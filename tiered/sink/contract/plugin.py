"""The plug-in of pytest: has it show what an assertion of the checks compared. ``pytest_plugins`` of a conftest names it."""

from __future__ import annotations

from tiered.sink.contract.checks import SinkContract
from tiered.sink.contract.feeding import TestedSink

__all__ = ["SinkContract", "TestedSink"]
