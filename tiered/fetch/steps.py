"""A read as a generator that yields the futures it waits for, and two ways to run it: in this thread, or whenever one is there.

The generator asks each future for its result itself, so an error is raised where it can be handled.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Generic, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Steps = Generator[Future[Any], None, Result]


def run_here(steps: Steps[Result]) -> Result:
    """The result of ``steps``; this thread waits."""
    try:
        while True:
            next(steps).exception()  # waits; the read itself asks for the result
    except StopIteration as done:
        result: Result = done.value
        return result


def run_later(steps: Steps[Result]) -> Future[Result]:
    """``run_here`` without a waiting thread: in this one until something has to be waited for, then in whichever has that.

    The future returned cannot be cancelled: what is under way is shared with others.
    """
    answer: Future[Result] = Future()
    answer.set_running_or_notify_cancel()
    _Drive(steps, answer).go_on(None)
    return answer


def done(call: Callable[Arguments, Result]) -> Callable[Arguments, Future[Result]]:
    """``call``, made in this thread, with its result or its error in a future that is done."""

    def made(*arguments: Arguments.args, **named: Arguments.kwargs) -> Future[Result]:
        future: Future[Result] = Future()
        try:
            future.set_result(call(*arguments, **named))
        except Exception as e:  # noqa: BLE001 - whatever it is, it belongs to the asker
            future.set_exception(e)
        return future

    return made


class _Drive(Generic[Result]):
    """Goes on with a read whenever what it waits for is there. Not a closure that names itself: such a circle would keep every
    answer in memory until the garbage collector comes by."""

    __slots__ = ("_answer", "_steps")

    def __init__(self, steps: Steps[Result], answer: Future[Result]) -> None:
        self._steps = steps
        self._answer = answer

    def go_on(self, _: object) -> None:
        """To the next wait or the end; a callback of what is waited for."""
        try:
            waiting = next(self._steps)
            while waiting.done():
                waiting = next(self._steps)
        except StopIteration as done:
            self._answer.set_result(done.value)
        except BaseException as e:  # noqa: BLE001 - whatever it is belongs to the reader
            self._answer.set_exception(e)
        else:
            waiting.add_done_callback(self.go_on)
