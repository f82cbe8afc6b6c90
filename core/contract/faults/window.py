"""What is said of the window: who may come in, what is uploaded, long work: message and hint by key."""

WINDOW = {
    "listen.certificate": (
        "Expected a certificate and its key in {certificate} and {key}, found: {reason}.",
        "Both as PEM files, the key without a password.",
    ),
    "listen.name": (
        "Expected a name or an address of this machine, found {host!r}.",
        "Write it as it stands in a browser, without port.",
    ),
    "listen.password/differ": ("Expected the same password twice, found two.", "Start it again."),
    "listen.password/file": (
        "Expected the password in {file}, the file that LUTHIER_PASSWORD_FILE names; it cannot be read.",
        "Write it there as one line.",
    ),
    "listen.password/no_terminal": (
        "Expected a password for --listen, found none, and no terminal to ask at.",
        "Set LUTHIER_PASSWORD_FILE to a file that holds it.",
    ),
    "listen.password/short": (
        "Expected a password of at least {least} characters, found {count} (blanks around it do not count).",
        "Choose a longer one; three or four words do well.",
    ),
    "listen.tls": (
        "Expected --tls-cert FILE and --tls-key FILE beside --listen, found neither.",
        "Name them, or say --listen-without-tls: then whoever is on the way can read everything.",
    ),
    "start.unread": (
        "Expected the typed file to be read before Start, found it unread.",
        "Press Enter in its field, look at its rows, then start.",
    ),
    "start.unread/dropped": (
        "Expected the dropped file to be read before Start, found it on its way.",
        "Wait until its rows are shown, look at them, then start.",
    ),
    "start.unread/settling": (
        "Expected settings that follow the file before Start, found it not read yet.",
        "Wait until its rows are shown and its tokens are counted, then start.",
    ),
    "upload.busy": (
        "Expected at most {most} files on their way at once, found as many already.",
        "Send it again when one of them has come.",
    ),
    "upload.count": (
        "Expected at most {most} files within ten minutes, found as many already.",
        "Type the path of the file instead, or wait a little.",
    ),
    "upload.size": (
        "Expected a file of at most {most} GB, found {wanted:.0f} GB.",
        "Type its path instead: it is then read where it lies.",
    ),
    "work.fault": ("It failed by a fault of ours; the terminal that runs the studio says more.", "Try again."),
}
