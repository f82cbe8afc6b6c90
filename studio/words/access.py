"""Words of the pages for browsers without a session, and of ``--listen``."""

ACCESS: dict[str, str] = {
    "door.opening": "Opening Luthier …",
    "door.title": "This browser has no key yet",
    "door.why": "Only browsers that Luthier itself has opened can use it. A start address works once, for two minutes.",
    "door.cure": "Run this again; it opens the studio that is already running:",
    "door.password.title": "Luthier asks for its password",
    "door.password.why": "This studio is open to other machines. Anyone who knows its password can use it.",
    "door.password": "Password",
    "door.password.send": "Sign in",
    "door.password.wrong": "That was not the password.",
    "door.password.wait": "Too many tries. Wait half a minute, then try again.",
    "listen.means": "--listen: every machine that can reach {address} can knock here. Whoever knows the password can "
    "read your data, start programs on this machine and use its card.",
    "listen.tls": "The connection is encrypted with {certificate}.",
    "listen.plain": "The connection is not encrypted: whoever is on the way can read the password and everything else. "
    "Use it only in a network that you trust.",
    "listen.names": "It answers to {names} and to nothing else. More names: --name NAME",
    "listen.address": "For other machines:   {address}",
    "listen.ask": "A password for this studio (at least {count} characters): ",
    "listen.ask_again": "The same again: ",
    "listen.living": "The studio that runs already is opened as it was started. To change that, close it first.",
}
