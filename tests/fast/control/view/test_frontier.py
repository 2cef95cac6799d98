"""How far readers have looked, and whose word counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.control.model.lifecycle import Registered
from services.control.view.frontier import LONGEST_DELAY, UNHEARD_AFTER_S, Frontiers, Published, of
from shared.config.model import Partition
from shared.config.partition import assigned
from shared.contracts.messages import Problem
from shared.contracts.reports import Frontier, Lagging, Share
from tests.fast.control.examples import at, declared, frontier, problem, published, registered, revision

A, B = registered("a"), registered("b", declared=declared("b"))
BOTH = published([A, B])


def heard(*pages: Frontier, known: Published = BOTH) -> Frontiers:
    frontiers = Frontiers()
    for page in pages:
        frontiers.note(page, known)
    return frontiers


def known_through(frontiers: Frontiers, id: str, generation: int = 1) -> int | None:
    word = of(frontiers.trusted, id, generation)
    return None if word is None else word.known_through(id)


def test_silence_about_a_destination_means_exact_at_the_head() -> None:
    frontiers = heard(frontier([A, B], head=10, lagging={"a": 7}))
    assert (known_through(frontiers, "a"), known_through(frontiers, "b")) == (7, 10)


def test_silence_of_a_reader_that_has_not_heard_of_a_destination_means_nothing() -> None:
    assert known_through(heard(frontier([A], head=10)), "b") is None


def test_silence_of_a_reader_that_knows_an_older_life_means_nothing() -> None:
    again = registered("b", declared=declared("b"), generation=2, revision=revision("2"))
    frontiers = heard(frontier([A, B], head=10), known=published([A, again]))
    assert known_through(frontiers, "b", generation=2) is None


def test_a_new_destination_does_not_make_the_others_unknown() -> None:
    frontiers = heard(frontier([A], head=10), known=published([A]))
    frontiers.trust(BOTH)
    frontiers.note(frontier([A], head=12, cycle=2), BOTH)
    assert (known_through(frontiers, "a"), known_through(frontiers, "b")) == (10, None)


def test_a_frontier_that_came_before_what_it_speaks_of_was_published_counts_afterwards() -> None:
    frontiers = heard(frontier([A, B], head=10), known=Published())
    assert known_through(frontiers, "a") is None
    frontiers.trust(BOTH)
    assert known_through(frontiers, "a") == 10


def test_a_frontier_counts_once_all_its_pages_are_there_in_any_order() -> None:
    first = frontier([A, B], lagging={"a": 7}, pages=2, page=0)
    second = frontier([A, B], lagging={"b": 8}, pages=2, page=1)
    assert heard(first).newest == ()
    for frontiers in (heard(first, second), heard(second, first)):
        assert (known_through(frontiers, "a"), known_through(frontiers, "b")) == (7, 8)


def test_pages_of_different_cycles_are_never_mixed() -> None:
    old = [frontier([A, B], lagging={"a": 7}, pages=2, page=number) for number in (0, 1)]
    new = frontier([A, B], head=20, pages=2, page=0, cycle=2)
    [whole] = heard(*old, new).newest
    assert (whole.head, whole.cycle) == (10, 1)


def test_a_reader_that_counts_its_cycles_from_the_beginning_again_is_not_mixed_with_its_former_self() -> None:
    old = [frontier([A, B], head=10, pages=2, page=number) for number in (0, 1)]
    new = frontier([A, B], head=20, pages=2, page=0)
    assert [whole.head for whole in heard(*old, new).newest] == [10]


def test_a_page_that_can_not_be_one_is_ignored() -> None:
    impossible = [frontier(page=1, pages=1), frontier(page=-1), frontier(pages=0), frontier(pages=10**12)]
    assert heard(*impossible).newest == ()


def test_it_is_settled_only_if_all_pages_are_and_its_error_is_that_of_any() -> None:
    gone: Problem = problem("source_unreachable")
    [whole] = heard(
        frontier([A, B], pages=2, page=0), frontier([A, B], pages=2, page=1, settled=False, error=gone)
    ).newest
    assert (whole.settled, whole.error) == (False, gone)


def test_of_two_readers_of_one_destination_the_further_one_counts() -> None:
    frontiers = heard(
        frontier([A, B], head=10, instance="one", at=at(90)), frontier([A, B], head=12, instance="two", at=at(30))
    )
    assert known_through(frontiers, "a") == 12


@given(st.integers(1, 4), st.lists(st.text("abcdef", min_size=1), unique=True, max_size=12))
def test_readers_that_share_a_pipeline_speak_each_for_its_own_share(total: int, names: list[str]) -> None:
    held = [registered(name, declared=declared(name)) for name in names]
    everything = published(held)
    pages = [share_of(held, ordinal, total) for ordinal in range(total)]
    frontiers = heard(*pages, known=everything)
    for name in names:
        head = next(page.head for page in pages if holds(page.share, name))
        assert known_through(frontiers, name) == head


def share_of(held: list[Registered], ordinal: int, total: int) -> Frontier:
    share = Share(mode="hash", total=total, ordinal=ordinal)
    own = [each for each in held if holds(share, each.id)]
    return frontier(own, head=100 + ordinal, instance=f"viaduck-{ordinal}", share=share)


def holds(share: Share, name: str) -> bool:
    return assigned(Partition(mode=share.mode, total=share.total, ordinal=share.ordinal), name)


def test_a_reader_with_a_part_of_the_destinations_says_nothing_about_the_others() -> None:
    share = Share(mode="explicit", include=("a",))
    frontiers = heard(frontier([A], share=share))
    assert (known_through(frontiers, "a"), known_through(frontiers, "b")) == (10, None)


def test_what_it_says_of_a_lagging_destination_is_kept_as_it_was_said() -> None:
    [whole] = heard(frontier([A, B], lagging={"a": 7})).newest
    assert whole.lagging == {"a": Lagging(known_through=7, lag_seconds=2.5)}


class TestPagesThatComeLate:
    """What a reader said before the broker fell silent says nothing of now, whenever it comes."""

    @staticmethod
    def say(frontiers: Frontiers, made_s: float, heard_s: float, cycle: int) -> None:
        frontiers.note(frontier([A, B], cycle=cycle, at=at(made_s)), BOTH, heard_s)

    def test_a_page_that_a_broker_held_back_is_as_old_as_it_is(self) -> None:
        frontiers = Frontiers()
        self.say(frontiers, 0, 100, cycle=1)
        assert not frontiers.unsure(100)
        self.say(frontiers, 5, 105 + UNHEARD_AFTER_S, cycle=2)
        assert frontiers.unsure(105 + UNHEARD_AFTER_S) == {"viaduck-0"}
        self.say(frontiers, 22, 105 + UNHEARD_AFTER_S, cycle=3)
        assert not frontiers.unsure(105 + UNHEARD_AFTER_S)

    @given(differ_s=st.integers(-1_000_000, 1_000_000), held_back_s=st.integers(0, 299))
    def test_whatever_the_clocks_say_only_pages_of_late_count(self, differ_s: float, held_back_s: float) -> None:
        frontiers = Frontiers()
        for cycle in range(1, 4):
            self.say(frontiers, 5 * cycle, 5 * cycle + differ_s, cycle=cycle)
        heard_s = 20 + held_back_s + differ_s
        self.say(frontiers, 20, heard_s, cycle=4)
        assert bool(frontiers.unsure(heard_s)) == (held_back_s >= UNHEARD_AFTER_S)

    def test_a_reader_whose_clock_was_set_back_is_heard_again_after_a_while(self) -> None:
        frontiers, back_s = Frontiers(), 1000
        self.say(frontiers, back_s, back_s, cycle=1)
        seconds = 0
        while frontiers.unsure(back_s + seconds) or not seconds:
            seconds += 5
            self.say(frontiers, seconds, back_s + seconds, cycle=1 + seconds)
            assert seconds < back_s + LONGEST_DELAY.total_seconds() + 10, "never heard again"

    def test_silence_counts_from_the_last_look_at_the_source_and_not_from_what_was_said_of_it(self) -> None:
        """The source silent and control frozen: a lag of 0 had been shown for 31 s."""
        frontiers = Frontiers()
        frontiers.note(frontier([A, B], at=at(0), look_age_seconds=0.1), BOTH, 0)
        frontiers.note(frontier([A, B], cycle=2, at=at(12), look_age_seconds=12.0), BOTH, 12)
        assert not frontiers.unsure(12 + 5)
        assert frontiers.unsure(12 + 8) == {"viaduck-0"}

    def test_a_reader_that_looks_once_a_minute_and_speaks_in_time_is_believed(self) -> None:
        frontiers = Frontiers()
        frontiers.note(frontier([A, B], at=at(0), look_age_seconds=59.0), BOTH, 0)
        assert not frontiers.unsure(5)
