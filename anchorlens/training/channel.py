"""Training processes report progress to the process that started them, which answers whether to continue."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, NamedTuple

from anchorlens.training.progress import Lines

GO_ON, STOP = b"go on", b"stop"


class Told(RuntimeError):  # noqa: N818 - no fault of the process that raises it
    """The process that started this one told it to stop."""


class Address(NamedTuple):
    """The address at which a process listens, and the authentication key."""

    place: Any
    key: bytes


@contextlib.contextmanager
def listening(
    take_in: Callable[[list[Any]], bool], put: Callable[[Callable[[], None]], None]
) -> Iterator[Address]:
    """Listen to the reports of `training_there` until the context ends.

    Args:
        take_in: is called with (job, updates made, text, lines) and returns whether to continue. It must not
            raise an Exception.
        put: queues a function to be called in the thread in which `take_in` must run.

    Yields:
        The address that `training_there` needs.
    """
    key = os.urandom(32)
    with Listener(backlog=64, authkey=key) as listener:
        ended = threading.Event()

        def accept() -> None:
            while True:
                try:
                    connection = listener.accept()
                except (AuthenticationError, EOFError, OSError):  # killed meanwhile, too many open files, ...
                    if ended.wait(0.1):
                        return
                    continue
                if ended.is_set():
                    connection.close()
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        def serve(connection: Connection) -> None:
            with connection, contextlib.suppress(EOFError, OSError):
                while True:
                    put(functools.partial(answer, connection, json.loads(connection.recv_bytes())))

        def answer(connection: Connection, message: list[Any]) -> None:
            goes_on = take_in(message)
            with contextlib.suppress(OSError):  # it was killed
                connection.send_bytes(GO_ON if goes_on else STOP)

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield Address(listener.address, key)
        finally:
            ended.set()
            with contextlib.suppress(OSError, EOFError):
                Client(listener.address, authkey=key).close()
                accepting.join()


def training_there(train: Callable[..., Any], address: Address, job: object, *arguments: object) -> Any:
    """Train in this process, and report progress to the process that listens at the address.

    Args:
        train: is called with `arguments` and `show`.
        address: the address of the listening process.
        job: what identifies the job in that process.
        *arguments: of `train`.

    Raises:
        Told: that process said to stop.
    """
    with Client(address.place, authkey=address.key) as connection:

        def show(steps: int, text: str, lines: Lines = ()) -> None:
            connection.send_bytes(json.dumps([job, steps, text, lines]).encode())
            if connection.recv_bytes() == STOP:
                raise Told("it was told to stop")

        return train(*arguments, show=show)
