"""The Doctor page in a real browser: every finding with its action, readable at both sizes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import RunningStudio, running_studio
from visiting import let_in

from core.machine.locations import REPOSITORY

pytestmark = pytest.mark.browser

RECORDED = REPOSITORY / "tests" / "unit" / "machine" / "doctor" / "machines" / "03-driver-too-old.json"
SIZES = {"wide": (1440, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def ailing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudio]:
    """A studio on a machine whose nvidia-smi answers as a recorded one, with a run's log from the future."""
    home, tools = tmp_path_factory.mktemp("ailing"), tmp_path_factory.mktemp("tools")
    smi = tools / "nvidia-smi"
    header = "\n".join(json.loads(RECORDED.read_text("utf-8"))["nvidia-smi"][""])
    smi.write_text(f"#!/bin/sh\ncat <<'END'\n{header}\nEND\n")
    smi.chmod(0o755)
    log = home / "runs" / "2026-11-20_2243_made_k3f9" / "events.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("")
    os.utime(log, (time.time() + 7000, time.time() + 7000))
    with running_studio(home, PATH=f"{tools}{os.pathsep}{os.environ['PATH']}") as studio:
        yield studio


@pytest.mark.parametrize("size", SIZES)
def test_every_finding_shows_its_line_and_its_action(size: str, ailing: RunningStudio, browser: Any) -> None:
    width, height = SIZES[size]
    context = let_in(browser, ailing, viewport={"width": width, "height": height})
    page = context.new_page()
    page.goto(f"{ailing.root}/doctor")
    page.locator(".finding").first.wait_for()
    rows = [row.inner_text() for row in page.locator(".finding").all()]
    assert "515.105.01" in rows[0]  # the fault stands first
    assert "Install a current NVIDIA driver" in rows[0]
    assert any("behind the newest run" in row and "timedatectl" in row for row in rows)
    assert page.locator(".finding.fault").count() == 1
    assert all("Do:" in row for row in rows if row.startswith(("Fault", "Advice")))
    styles = "rows => rows.map(row => getComputedStyle(row).borderLeftWidth + getComputedStyle(row).borderRadius)"
    assert set(page.locator(".finding").evaluate_all(styles)) == {"0px0px"}  # a fault is a row, and no box of its own
    for row in page.locator(".finding").all():
        box = row.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    if shots := os.environ.get("LUTHIER_SHOTS"):
        page.screenshot(path=str(Path(shots) / f"doctor-{size}.png"))
    context.close()
