"""``python -m vmflow info``: what vmflow is running on."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand and return the exit code.

    Args:
        arguments: of the command line, by default those of this process.
    """
    parser = argparse.ArgumentParser(prog="python -m vmflow", description="Tools of vmflow.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    info = commands.add_parser("info", help="show versions, devices, memory and settings")
    info.add_argument("--json", action="store_true", help="the same as JSON")
    chosen = parser.parse_args(arguments)

    from .info import collect_info, format_info

    found = collect_info()
    print(json.dumps(found, indent=2) if chosen.json else format_info(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
