"""What pages say where the faults of ``core.contract.faults.tools`` come up."""

from studio.words.faults.kinds import Words

TOOLS: dict[str, Words] = {}
