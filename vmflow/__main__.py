"""``vmflow info`` shows versions and devices, ``vmflow serve`` serves a saved graph; also by ``python -m vmflow``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from . import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand and return the exit code.

    Args:
        arguments: the words of the command line; None for those of this process.

    Raises:
        SystemExit: for wrong arguments, ``--help`` and ``--version``.
    """
    parser = argparse.ArgumentParser(prog=_called(), description="Tools of vmflow.")
    parser.add_argument("--version", action="version", version=f"vmflow {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    info = commands.add_parser("info", help="show versions, devices, memory and settings")
    info.add_argument("--json", action="store_true", help="the same as JSON")
    _add_serve(commands)
    chosen = vars(parser.parse_args(arguments))
    if chosen.pop("command") == "serve":
        from .serving.command import serve

        return serve(chosen.pop("folder"), **chosen)

    from .info import collect_info, format_info

    found = collect_info()
    print(json.dumps(found, indent=2) if chosen["json"] else format_info(found))
    return 0


def _called() -> str:
    """How this program was called."""
    return "vmflow" if os.path.basename(sys.argv[0]) == "vmflow" else "python -m vmflow"


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser("serve", help="serve a saved graph over HTTP")
    serve.add_argument("folder", metavar="DIR", help="that vmflow.save(graph, DIR) has written")
    serve.add_argument("--host", default="127.0.0.1", help="to listen on (default: %(default)s)")
    serve.add_argument("--port", type=int, default=8000, help="0 for any that is free (default: %(default)s)")
    serve.add_argument(
        "--uds", metavar="PATH", help="listen on this socket instead, to which only this user can connect"
    )
    serve.add_argument(
        "--max-queue",
        type=int,
        default=256,
        help="requests that may wait, from when they begin, half of them one client's (default: %(default)s)",
    )
    serve.add_argument(
        "--timeout", type=float, help="seconds in which a request must have its result, from when it begins"
    )
    _add_limits(serve.add_argument_group("clients that are slow, or many"))
    serve.add_argument(
        "--drain-delay", type=float, default=0.0, help="seconds in which requests are still taken after SIGTERM"
    )
    serve.add_argument(
        "--drain-timeout", type=float, default=30.0, help="seconds after that for requests under way (default: 30)"
    )
    serve.add_argument("--reuse-port", action="store_true", help="let other processes listen on the same port")
    serve.add_argument("--access-log", action="store_true", help="log each request")


def _add_limits(group: Any) -> None:
    group.add_argument(
        "--max-connections",
        type=int,
        metavar="N",
        help="connections at a time; one more ends one that is idle (default: 1000, or as many as ulimit -n allows)",
    )
    seconds = {
        "header-timeout": (10.0, "in which the head of a request must have come"),
        "body-timeout": (30.0, "in which its body must have come"),
        "write-timeout": (30.0, "in which a client must take some of the response that waits for it"),
        "keep-alive": (5.0, "that a connection is kept on which nothing more comes"),
    }
    for name, (default, about) in seconds.items():
        group.add_argument(
            f"--{name}", type=float, default=default, metavar="S", help=f"seconds {about} (default: %(default)g)"
        )
    group.add_argument(
        "--body-budget",
        type=int,
        metavar="MIB",
        help="that bodies may hold together while they come, half of it one client's (default: 256, or four bodies)",
    )


if __name__ == "__main__":
    sys.exit(main())
