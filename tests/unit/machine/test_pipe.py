"""The window's end of a pipe: whoever asked first is served first."""

from __future__ import annotations

import threading

from core.machine.children.pipe import _InOrder


def test_who_asked_first_is_served_first_and_who_went_away_is_passed_over() -> None:
    order, held = _InOrder(), threading.Event()
    served: list[int] = []

    def wait(number: int) -> None:
        with order:
            served.append(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(4)]
    with order:
        for number, thread in enumerate(threads):
            if number == 2:
                order._given_up.add(order._last)
                order._last += 1
            thread.start()
            while order._last < number + 2 + (number >= 2):
                held.wait(0.001)
    for thread in threads:
        thread.join(5)
    assert served == [0, 1, 2, 3]
