"""What pages say where the faults of ``core.contract.faults.models`` come up."""

from studio.words.faults.kinds import Words

MODELS: dict[str, Words] = {}
