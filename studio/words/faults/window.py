"""What pages say where the faults of ``core.contract.faults.window`` come up."""

from studio.words.faults.kinds import Words

WINDOW: dict[str, Words] = {}
