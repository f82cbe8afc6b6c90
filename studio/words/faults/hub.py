"""What pages say where the faults of ``core.contract.faults.hub`` come up."""

from studio.words.faults.kinds import Words

HUB: dict[str, Words] = {}
