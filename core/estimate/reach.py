"""What places rows longer than a model was made for: a scaling of its positions, and the length that is left."""

from collections.abc import Iterator

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.config.positions import ROPE_SCALINGS
from core.contract.data import DataFacts
from core.contract.estimate import Resolved
from core.estimate.inputs.rows import Rows, rows_of
from core.models.positions import limited, reach, scaling_for, unstretchable
from core.models.suited import put


def place(config: RunConfig, spec: ModelSpec, facts: DataFacts | None) -> tuple[RunConfig, list[Resolved]]:
    """Fills in what places rows that are longer than the model was made for; nothing before the data is read."""
    lines = []
    for key, value, reason in _positions(config, spec, rows_of(config, facts)):
        config = put(config, key, value)
        lines.append(Resolved(key=key, value=f"{value:g}" if isinstance(value, float) else str(value), reason=reason))
    return config, lines


def _positions(config: RunConfig, spec: ModelSpec, rows: Rows) -> Iterator[tuple[str, str | float, str]]:
    """What stretches positions over rows longer than the model was made for; what is longer still is cut."""
    model, made = config.model, f"the model was made for {spec.shape.max_position_embeddings:,}"
    if not rows.known:
        return
    (name, factor), open_ = scaling_for(model, spec, rows.longest), model.rope_scaling == "auto"
    stretched = bool(ROPE_SCALINGS[name].rope_type)
    reached = f"{made}; rows reach {rows.longest:,}"
    if open_ and (stretched or rows.longest > spec.shape.max_position_embeddings):
        yield "model.rope_scaling", name, reached if stretched else f"{reached}, and {unstretchable(spec)}"
    elif open_:
        yield "model.rope_scaling", name, f"{made}, and no row is longer"
    if stretched and not model.rope_factor:
        yield "model.rope_factor", factor, reached
    most = reach(model, spec, rows.longest)
    if rows.longest > most and limited(spec):
        why = f"positions reach so far with {ROPE_SCALINGS[name].title} {factor:g}" if stretched else (
            f"{made}, and its positions are not scaled"
        )  # fmt: skip
        yield "train.max_length", most, why
