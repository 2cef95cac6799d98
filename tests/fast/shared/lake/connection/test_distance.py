"""How far away servers are, by a clock of our own."""

from __future__ import annotations

import pytest

from shared.lake.connection.distance import ENOUGH, NEAR_S, Distance


class Server:
    """Answers after so many seconds."""

    def __init__(self) -> None:
        self._now = 0.0
        self.distance = Distance(lambda: self._now)

    def answers(self, seconds: float, times: int = ENOUGH) -> float:
        """What is known of the distance then."""
        for _ in range(times):
            with self.distance.asked():
                self._now += seconds
        return self.distance.round_trip_s


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_distance_is_not_known_before_there_are_enough_answers(server: Server) -> None:
    assert server.answers(0.02, ENOUGH - 1) == 0.0
    assert server.answers(0.02, 1) == pytest.approx(0.02)


def test_the_shortest_answer_tells_the_distance_however_busy_both_machines_are_later(server: Server) -> None:
    server.answers(0.02, 1)
    assert server.answers(0.3, 10 * ENOUGH) == pytest.approx(0.02)


def test_what_is_known_holds_until_there_are_enough_answers_of_the_next_burst(server: Server) -> None:
    server.answers(0.02)
    server.distance.begin()
    assert server.distance.round_trip_s == pytest.approx(0.02)
    assert server.answers(0.05, ENOUGH - 1) == pytest.approx(0.02)
    assert server.answers(0.05, 1) == pytest.approx(0.05)


def test_small_bursts_add_up(server: Server) -> None:
    for _ in range(4):
        server.distance.begin()
        assert server.distance.round_trip_s == 0.0
        server.answers(0.02, ENOUGH // 4)
    assert server.distance.round_trip_s == pytest.approx(0.02)


def test_who_is_near_again_shows_at_once(server: Server) -> None:
    server.answers(0.02)
    server.distance.begin()
    assert server.answers(0.001, 1) == 0.0


def test_what_takes_no_longer_than_a_look_on_the_same_machine_is_no_distance(server: Server) -> None:
    assert server.answers(NEAR_S * 0.9) == 0.0
    server.distance.begin()
    assert server.answers(NEAR_S * 1.1) == pytest.approx(NEAR_S * 1.1)


def test_a_question_that_fails_tells_nothing(server: Server) -> None:
    server.answers(0.02)
    with pytest.raises(ValueError, match="refused"), server.distance.asked():
        raise ValueError("refused")
    assert server.distance.round_trip_s == pytest.approx(0.02)
