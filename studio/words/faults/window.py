"""What pages say where the faults of ``core.contract.faults.window`` come up."""

from studio.words.faults.kinds import Words

WINDOW: dict[str, Words] = {
    "listen.certificate": (
        "The certificate {certificate} with the key {key} cannot be used: {reason}.",
        "Both must be PEM files, and the key must have no password.",
    ),
    "listen.name": (
        "“{host}” is not a name or an address of a machine.",
        "Write it as it stands in a browser, without the port.",
    ),
    "listen.password/differ": (
        "The two passwords are not the same.",
        "Start Luthier again, and type the same one twice.",
    ),
    "listen.password/file": (
        "The file with the password, {file}, cannot be read or is empty.",
        "Write the password there as one line, or have LUTHIER_PASSWORD_FILE name another file.",
    ),
    "listen.password/no_terminal": (
        "Other machines are let in with a password only, and there is no terminal to ask you for one.",
        "Write it into a file, and have LUTHIER_PASSWORD_FILE name that file.",
    ),
    "listen.password/short": "The password has {count} characters and needs at least {least}. Blanks around it do not "
    "count.",
    "listen.tls": (
        "Other machines are let in over an encrypted connection, which needs a certificate and its key.",
        "Name them with --tls-cert FILE and --tls-key FILE. With --listen-without-tls, whoever is on the way can read "
        "everything.",
    ),
    "start.unread": "The file that you typed has not been read yet.",
    "start.unread/dropped": "The file that you dropped has not been read yet.",
    "start.unread/settling": "Your file has not been read yet, and the settings will follow it.",
    "upload.busy": "{most} files are already on their way, which is the most at once.",
    "upload.count": "{most} files have come within ten minutes, which is the most.",
    "upload.size": "The file has {wanted:.0f} GB. Up to {most} GB can be sent.",
    "work.fault": (
        "An error in Luthier itself stopped this.",
        "Try again. The terminal that runs Luthier shows the details.",
    ),
}
