"""Tells on this machine's desktop, with a program that is there, without a shell.

::

    Linux   notify-send                 the desktop's own notifications, where somebody is logged in
    macOS   osascript                   display notification; the words are arguments of the script
    WSL     powershell.exe              a toast; the words are text nodes, and reach the script as base64
"""

import base64
import html
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

POWERSHELL = "/mnt/c/Windows/System32/WindowsPowerShell/v1.0/powershell.exe"
_SECONDS = 10.0
_MOST = 200
_SCRIPT = ("on run told", "display notification (item 2 of told) with title (item 1 of told)", "end run")
_KIND = "[Windows.UI.Notifications.ToastNotificationManager, Windows.UI.Notifications, ContentType = WindowsRuntime]"
_SENDER = "{1AC14E77-02E7-4E5D-B744-2EB1AE5198B7}\\WindowsPowerShell\\v1.0\\powershell.exe"
_TOAST = (
    "$words = '%s' -split ' ' | ForEach-Object {{ [Text.Encoding]::UTF8.GetString([Convert]::FromBase64String($_)) }}; "
    f"$toast = {_KIND}::GetTemplateContent('ToastText02'); "
    "$places = $toast.GetElementsByTagName('text'); "
    "0..1 | ForEach-Object {{ $null = $places.Item($_).AppendChild($toast.CreateTextNode($words[$_])) }}; "
    f"{_KIND}::CreateToastNotifier('{_SENDER}').Show([Windows.UI.Notifications.ToastNotification]::new($toast))"
)
Find = Callable[[str], str | None]


def command(title: str, body: str, wsl: bool, find: Find = shutil.which, platform: str = sys.platform) -> list[str]:
    """What shows these words; empty where there is no way. ``find`` is ``shutil.which``."""
    words = [" ".join(text.split())[:_MOST] for text in (title, body)]
    if wsl:
        program = find("powershell.exe") or find(POWERSHELL)
        told = " ".join(base64.b64encode(text.encode()).decode() for text in words)
        script = base64.b64encode((_TOAST.replace("{{", "{").replace("}}", "}") % told).encode("utf-16-le")).decode()
        return [program, "-NoProfile", "-NonInteractive", "-EncodedCommand", script] if program else []
    if platform == "darwin":
        program = find("osascript")
        return [program, *(part for line in _SCRIPT for part in ("-e", line)), *words] if program else []
    # Some desktops read a body as HTML.
    program = find("notify-send")
    return [program, "--app-name=Luthier", "--", words[0], html.escape(words[1], quote=False)] if program else []


def can_tell(wsl: bool) -> bool:
    """Whether there is a program that shows notifications."""
    return bool(command("", "", wsl))


def tell(title: str, body: str, wsl: bool) -> None:
    """Shows a notification; a desktop that cannot is no fault."""
    if told := command(title, body, wsl):
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(told, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)
