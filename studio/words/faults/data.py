"""What pages say where the faults of ``core.contract.faults.data`` come up."""

from studio.words.faults.kinds import Words

DATA: dict[str, Words] = {
    "data.cache/disk": (
        "The tokens that were just made could not be kept: {reason}.",
        "Free some disk space, and try again.",
    ),
}
