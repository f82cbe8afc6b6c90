"""What pages say where the faults of ``core.contract.faults.machine`` come up."""

from studio.words.faults.kinds import Words

MACHINE: dict[str, Words] = {}
