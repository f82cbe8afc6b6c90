"""Whole exports as GGUF: what is written is what llama.cpp reads, answers and loses; what it cannot be is refused."""

from __future__ import annotations

from test_export_run import Ask, carries_no_path, done

from core.runs.folder.job_folder import JobFolder


def test_a_run_as_a_gguf_file_is_checked_in_llama_cpp(run: JobFolder, ask_for: Ask) -> None:
    out, said = done(ask_for("mine", "gguf", quantisation="f16"))
    assert {path.name for path in out.iterdir()} >= {"model-F16.gguf", "README.md"}
    [exported] = said.of("exported")
    print(exported)
    assert carries_no_path(out)


def test_an_adapter_as_gguf(run: JobFolder, ask_for: Ask) -> None:
    out, said = done(ask_for("mine", "gguf_adapter"))
    [exported] = said.of("exported")
    print(exported, list(out.iterdir()))
