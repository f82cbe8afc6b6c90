"""A report on disk: read as it was written, by this version and by those around it."""

import math

import pytest

from core.contract.errors import RunError
from core.machine.locations import Locations
from core.report.choices import Check, ReportChoices, read_choices, write_choices
from core.report.schema import Figure, Report, read_report
from tests.report_example import example


def test_a_report_is_read_as_it_was_written_and_a_newer_or_damaged_one_is_not(locations: Locations) -> None:
    path, report = locations.home / "report.json", example()
    path.write_text(report.model_dump_json(), encoding="utf-8")
    assert read_report(path) == report
    assert not report.whole, "one of its parts did not fit"
    newer = report.model_dump() | {"version": report.version + 1}
    with pytest.raises(ValueError, match="newer"):
        Report.model_validate(newer)
    path.write_text(report.model_dump_json().replace('"version":1', '"version":99'), encoding="utf-8")
    assert read_report(path) is None
    for damaged in ("{", report.model_dump_json().replace('"made_at":1795400000.0', '"made_at":NaN')):
        path.write_text(damaged, encoding="utf-8")
        assert read_report(path) is None
    assert read_report(locations.home / "none.json") is None


def test_a_perplexity_keeps_the_interval_and_never_overflows() -> None:
    figure = Figure(value=1.0, low=0.0, high=2.0, of=3).exp
    assert (figure.value, figure.low, figure.high) == (math.exp(1.0), 1.0, math.exp(2.0))
    assert math.isfinite(Figure(value=9e9).exp.value)


def test_checks_are_kept_once_for_all_runs_and_a_damaged_file_means_none(locations: Locations) -> None:
    assert read_choices(locations) == ReportChoices()
    checks = (Check(name="short", kind="length", most=9), Check(name="city", kind="contains", data="cities.jsonl"))
    write_choices(locations, ReportChoices(checks=checks))
    assert [check.name for check in read_choices(locations).checks_for("letters.jsonl")] == ["short"]
    assert [check.name for check in read_choices(locations).checks_for("cities.jsonl")] == ["short", "city"]
    with pytest.raises(RunError, match="'short' twice"):
        write_choices(locations, ReportChoices(checks=(checks[0], checks[0])))
    with pytest.raises(RunError, match="file of texts"):
        write_choices(locations, ReportChoices(general="/none/there.txt"))
    locations.report_choices.write_text("{", encoding="utf-8")
    assert read_choices(locations) == ReportChoices()
