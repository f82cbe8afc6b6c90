"""Every op against float64: the verdict here, and that a wrong op is found out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from core.bench import kernels

CPU = torch.device("cpu")


def test_every_op_agrees_on_the_cpu_and_says_what_ran() -> None:
    heard: list[str] = []
    result = kernels.prove(heard.append, CPU)
    assert [row["op"] for row in result["rows"] if not row["agrees"]] == []
    assert result["agrees"] is True
    assert result["path"] == "textbook", "no kernel runs without a card, and the result says so"
    assert len(result["rows"]) == 2 * len(kernels.CASES) == len(heard)
    assert heard[2].endswith(f"begins (3 of {len(heard)})")
    assert all(row["error"] > 0 for row in result["rows"]), "a comparison with itself would prove nothing"
    assert "no kernels on this machine" in kernels.table(result)


@pytest.mark.parametrize("case", kernels.CASES, ids=lambda case: case.name)
def test_a_result_that_is_a_little_wrong_differs(case: kernels.Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each result of each op in turn, wrong by a hundredth in one value or not a number."""
    size = kernels.SMALL
    count = len(case.plain(*case.draw(torch.Generator().manual_seed(1), size)))
    for index in range(count):
        for wrong in (lambda part: part.mul(1.01), lambda part: part.mul(torch.nan)):

            def spoiled(*inputs: torch.Tensor, index: int = index, wrong: object = wrong) -> tuple[torch.Tensor, ...]:
                results = [part.clone() for part in case.ours(*inputs)]
                worst = results[index].abs().argmax()
                results[index].view(-1)[worst] = wrong(results[index].view(-1)[worst])  # type: ignore[operator]
                return tuple(results)

            row = kernels._checked(replace(case, ours=spoiled), torch.float32, CPU)
            assert row["agrees"] is False, (case.name, index)
