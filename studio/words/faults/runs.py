"""What pages say where the faults of ``core.contract.faults.runs`` come up."""

from studio.words.faults.kinds import Words

RUNS: dict[str, Words] = {}
