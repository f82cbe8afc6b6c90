"""``python -m core.cli COMMAND``: what ``launcher.py`` hands over to inside ``.venv``."""

import sys

from core.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
