"""``python -m studio``: opens the studio, as ``python3 launcher.py`` without a command does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from core.terminal import exit_code

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the studio's options and serves it until Ctrl+C; an error is one line on stderr."""
    parser = argparse.ArgumentParser(prog="launcher.py", description="Open the studio in the browser.")
    parser.add_argument("--port", type=int, metavar="N", help="port on 127.0.0.1 (default 8765)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument(
        "--home", metavar="DIR", help="root folder of runs and data (default ~/luthier-studio, or LUTHIER_HOME)"
    )
    chosen = parser.parse_args(arguments)
    if chosen.port is not None and not 1024 <= chosen.port <= 65535:
        print(f"Expected a port from 1024 to 65535, found {chosen.port}. Choose another: --port 8765", file=sys.stderr)
        return 1
    from studio.app import main as open_studio

    return exit_code(lambda: open_studio(chosen.port, chosen.home, not chosen.no_browser), interrupted=0)


if __name__ == "__main__":
    sys.exit(main())
