"""``python -m core.cli COMMAND``: what ``launcher.py`` hands over to inside ``.venv``."""

from __future__ import annotations

import sys

from core.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
