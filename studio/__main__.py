"""``python -m studio``: opens the studio, as ``python3 launcher.py`` without a command does."""

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from core.machine.terminal import exit_code


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the studio's options and serves it until Ctrl+C; an error is one line on stderr."""
    parser = argparse.ArgumentParser(prog="launcher.py", description="Open the studio in the browser.")
    parser.add_argument("--port", type=int, metavar="N", help="port on 127.0.0.1 (default 8765)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument(
        "--home", metavar="DIR", help="root folder of runs and data (default ~/luthier-studio, or LUTHIER_HOME)"
    )
    _listening(parser)
    chosen = parser.parse_args(arguments)
    if chosen.port is not None and not 1024 <= chosen.port <= 65535:
        print(f"Expected a port from 1024 to 65535, found {chosen.port}. Choose another: --port 8765", file=sys.stderr)
        return 1
    if not chosen.listen and (chosen.name or chosen.tls_cert or chosen.tls_key or chosen.listen_without_tls):
        parser.error("--name, --tls-cert, --tls-key and --listen-without-tls belong to --listen")
    if bool(chosen.tls_cert) != bool(chosen.tls_key) or (chosen.tls_cert and chosen.listen_without_tls):
        parser.error("--tls-cert and --tls-key belong together, and exclude --listen-without-tls")
    gc.disable()  # until New run is built: importing and building only add objects
    try:
        from studio.server.access.listening import Wish
        from studio.server.app import main as open_studio

        wish = Wish(chosen.listen, tuple(chosen.name), chosen.tls_cert, chosen.tls_key, chosen.listen_without_tls)
        return exit_code(lambda: open_studio(chosen.port, chosen.home, not chosen.no_browser, wish), interrupted=0)
    finally:
        gc.enable()


def _listening(parser: argparse.ArgumentParser) -> None:
    """The options of a studio for other machines. Its password is none of them: every program can read these."""
    group = parser.add_argument_group(
        "for other machines",
        "Asks for a password once, or takes it from LUTHIER_PASSWORD_FILE or LUTHIER_PASSWORD. Whoever knows it can "
        "read your data and start programs here.",
    )
    group.add_argument(
        "--listen", nargs="?", const="0.0.0.0", default="", metavar="ADDRESS",  # noqa: S104 - asked for by hand
        help="listen on ADDRESS, or on all of this machine's; wants --tls-cert and --tls-key, or --listen-without-tls",
    )  # fmt: skip
    group.add_argument(
        "--name", action="append", default=[], metavar="NAME", help="a name it answers to, more than once"
    )
    group.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate (PEM)")
    group.add_argument("--tls-key", type=Path, metavar="FILE", help="its key (PEM)")
    group.add_argument("--listen-without-tls", action="store_true", help="unencrypted: others on the way can read all")


if __name__ == "__main__":
    sys.exit(main())
