"""Futures in a row, without a thread that waits for them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def chained(
    first: Future[A],
    then: Callable[[A], Future[B] | B],
    failed: Callable[[BaseException], Future[B] | B] | None = None,
) -> Future[B]:
    """``then`` of the result of ``first`` (or ``failed`` of its error), in whichever thread has it; a future it gives counts.

    The future returned cannot be cancelled: what is under way is shared with others.
    """
    out: Future[B] = Future()
    out.set_running_or_notify_cancel()

    def pass_on(done: Future[B]) -> None:
        error = done.exception()
        if error is not None:
            out.set_exception(error)
        else:
            out.set_result(done.result())

    def step(done: Future[A]) -> None:
        try:
            error = done.exception()
            if error is None:
                made = then(done.result())
            elif failed is not None:
                made = failed(error)
            else:
                raise error
        except BaseException as e:  # noqa: BLE001 - handed on to the waiting caller
            out.set_exception(e)
            return
        if isinstance(made, Future):
            made.add_done_callback(pass_on)
        else:
            out.set_result(made)

    first.add_done_callback(step)
    return out
