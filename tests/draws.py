"""How many examples hypothesis draws."""

from hypothesis import HealthCheck, settings


def draws(few: int, *allowed: HealthCheck) -> settings:
    """So many where the same are drawn each time, five times as many where new ones are (see conftest.py)."""
    count = few if settings().derandomize else 5 * few
    return settings(max_examples=count, deadline=None, suppress_health_check=allowed)
