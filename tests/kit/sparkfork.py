"""Has the warm process of ``sparkworker.py`` fork a command, and lives as long: ``python sparkfork.py SOCKET WORD ...``.

Spark knows the command by this process: it is started in its place, and ended with it. The standard library alone is used, as
this is to start fast.
"""

import json
import os
import signal
import socket
import sys


def main(path: str, words: list[str]) -> int:
    """The command's exit code."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    asked = json.dumps({"words": words, "environment": dict(os.environ), "directory": os.getcwd()})
    data = asked.encode("utf-8", "surrogateescape")
    socket.send_fds(connection, [len(data).to_bytes(4, "big")], [1, 2])
    connection.sendall(data)
    pid = int.from_bytes(connection.recv(4), "big")
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(pid, number))
    told = connection.recv(4)
    return os.waitstatus_to_exitcode(int.from_bytes(told, "big")) if told else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
