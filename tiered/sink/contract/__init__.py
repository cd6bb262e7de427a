"""What every sink promises, as tests: for whoever writes a driver, in this program or elsewhere.

Owns: the checks (``checks``), the messages that they give (``samples``), a runner in small (``feeding``) and the plug-in of
pytest (``plugin``). Does not own: drivers, nor the program's own runner.
Invariant: nothing of the program imports this room, and nothing in it imports pytest: it costs users nothing.
Threads: none.

A driver's test file, beside ``pytest_plugins = ["tiered.sink.contract.plugin"]`` in its ``conftest.py``::

    class TestMine(SinkContract):
        @pytest.fixture
        def tested(self, tmp_path):
            return Mine(tmp_path)  # a TestedSink: opens the sink, reads back what its destination has
"""
