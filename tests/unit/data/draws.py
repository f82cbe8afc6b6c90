"""How many examples hypothesis draws in this room."""

from hypothesis import HealthCheck, settings


def draws(few: int, *allowed: HealthCheck) -> settings:
    """So many where the same are drawn each time, four times as many where new ones are (see tests/conftest.py)."""
    count = few if settings().derandomize else 4 * few
    return settings(max_examples=count, deadline=None, suppress_health_check=allowed)
