"""The hang detector on a clock of its own: when it worries, whom it names, when it looks again."""

import pytest

from dlrover_cli.agent.progress import Activity, Hang, HangSettings, Look, ProgressWatch
from dlrover_cli.workers.beats import Beat

START = 1000.0
ON = HangSettings(timeout=60.0, start_grace=600.0)
OFF = HangSettings()


def beat(at: float, *, steps: int = 1, first: float | None = None) -> Beat:
    first_ns = int((at if first is None else first) * 1e9)
    return Beat(steps=steps, beats=steps, first_step_ns=first_ns, step_ns=int(at * 1e9))


def heartbeat(at: float) -> Beat:
    return Beat(heartbeats=1, heartbeat_ns=int(at * 1e9))


def stepped(*times: float) -> dict[int, Activity]:
    """One rank per time, each with its last step then."""
    return {rank: Activity(beat(at)) for rank, at in enumerate(times)}


class TestSwitchedOn:
    def test_a_job_that_stands_still_for_the_timeout_hangs(self) -> None:
        watch = ProgressWatch(ON, START)
        ranks = stepped(1100.0, 1101.0)
        assert watch.look(ranks, 1110.0) == Look(again_at=1161.0)
        assert watch.look(ranks, 1160.9) == Look(again_at=1161.0)
        assert watch.look(ranks, 1161.0) == Look(hang=Hang((0, 1), since=1101.0))

    def test_a_single_rank_that_moves_is_enough(self) -> None:
        watch = ProgressWatch(ON, START)
        ranks = stepped(1100.0, 1100.0) | {2: Activity(heartbeat(1159.0))}
        assert watch.look(ranks, 1160.0) == Look(again_at=1219.0)

    @pytest.mark.parametrize(
        "activity",
        [
            Activity(beat(1150.0)),
            Activity(heartbeat(1150.0)),
            Activity(beat(1100.0), last_output=1150.0),
            Activity(last_output=1150.0),
        ],
    )
    def test_a_step_a_heartbeat_and_output_all_count(self, activity: Activity) -> None:
        watch = ProgressWatch(ON, START)
        ranks = stepped(1100.0) | {1: activity}
        assert watch.look(ranks, 1160.0) == Look(again_at=1210.0)

    def test_before_the_first_beat_the_grace_holds(self) -> None:
        watch = ProgressWatch(ON, START)
        silent = {0: Activity(), 1: Activity()}
        now = 1100.0
        while now < 1600.0:
            look = watch.look(silent, now)
            assert look == Look(again_at=min(now + 60.0, 1600.0))
            now = look.again_at or 0.0
        assert watch.look(silent, 1600.0) == Look(hang=Hang((0, 1), since=START))

    def test_a_first_beat_during_the_grace_is_not_overslept(self) -> None:
        watch = ProgressWatch(ON, START)
        assert watch.look({0: Activity()}, 1010.0) == Look(again_at=1070.0)
        assert watch.look(stepped(1020.0), 1070.0) == Look(again_at=1080.0)
        assert watch.look(stepped(1020.0), 1080.0).hang == Hang((0,), since=1020.0)

    def test_output_does_not_end_the_grace(self) -> None:
        watch = ProgressWatch(ON, START)
        compiling = {0: Activity(last_output=1010.0)}
        assert watch.look(compiling, 1100.0) == Look(again_at=1160.0)
        assert watch.look(compiling, 1160.0).hang is None

    def test_output_at_the_end_of_the_grace_is_movement(self) -> None:
        watch = ProgressWatch(ON, START)
        assert watch.look({0: Activity(last_output=1590.0)}, 1600.0) == Look(again_at=1650.0)

    def test_a_timeout_longer_than_the_grace_holds_from_the_start(self) -> None:
        watch = ProgressWatch(HangSettings(timeout=900.0, start_grace=10.0), START)
        assert watch.look({0: Activity()}, 1100.0) == Look(again_at=1900.0)
        assert watch.look({0: Activity()}, 1900.0).hang == Hang((0,), since=START)

    def test_the_first_beat_of_any_rank_ends_the_grace(self) -> None:
        watch = ProgressWatch(ON, START)
        ranks = {0: Activity(beat(1020.0)), 1: Activity()}
        assert watch.look(ranks, 1080.0).hang == Hang((0, 1), since=1020.0, behind=(1,))

    def test_the_ranks_with_fewer_steps_are_named(self) -> None:
        watch = ProgressWatch(ON, START)
        ranks = {rank: Activity(beat(1100.0, steps=50)) for rank in range(4)}
        ranks[2] = Activity(beat(1099.0, steps=49))
        assert watch.look(ranks, 1160.0).hang == Hang((0, 1, 2, 3), since=1100.0, behind=(2,))

    def test_a_majority_is_not_behind(self) -> None:
        watch = ProgressWatch(ON, START)
        ranks = {rank: Activity(beat(1100.0, steps=49)) for rank in range(3)}
        ranks[3] = Activity(beat(1100.0, steps=50))
        hang = watch.look(ranks, 1160.0).hang
        assert hang is not None
        assert hang.behind == ()

    def test_a_hang_is_reported_by_every_look(self) -> None:
        watch = ProgressWatch(ON, START)
        assert watch.look(stepped(1100.0), 1160.0).hang
        assert watch.look(stepped(1100.0), 1161.0).hang

    def test_nobody_is_left_to_hang_when_all_have_finished(self) -> None:
        assert ProgressWatch(ON, START).look({}, 5000.0) == Look()

    def test_an_agent_that_slept_through_its_time_gives_everybody_another_one(self) -> None:
        """A stopped or suspended machine stops the workers too."""
        watch = ProgressWatch(ON, START)
        ranks = stepped(1100.0)
        assert watch.look(ranks, 1110.0).again_at == 1160.0
        assert watch.look(ranks, 9000.0) == Look(again_at=9060.0)
        assert watch.look(ranks, 9060.0).hang == Hang((0,), since=9000.0)


class TestSwitchedOff:
    def usual(self, at: float, seconds: float, steps: int = 101) -> dict[int, Activity]:
        """One rank whose last step was then, after steps of that many seconds."""
        first = at - seconds * (steps - 1)
        return {0: Activity(beat(at, steps=steps, first=first))}

    def test_five_minutes_of_nothing_is_one_warning(self) -> None:
        watch = ProgressWatch(OFF, START)
        ranks = self.usual(2000.0, 1.0)
        assert watch.look(ranks, 2100.0) == Look(again_at=2300.0)
        assert watch.look(ranks, 2300.0) == Look(warning=Hang((0,), since=2000.0))
        assert watch.look(ranks, 2600.0) == Look()
        assert watch.look(self.usual(2700.0, 1.0), 9000.0) == Look()

    def test_with_slow_steps_it_takes_ten_of_them(self) -> None:
        watch = ProgressWatch(OFF, 0.0)
        ranks = self.usual(50_000.0, 100.0)
        assert watch.look(ranks, 50_300.0) == Look(again_at=50_600.0)
        assert watch.look(ranks, 50_600.0) == Look(again_at=50_900.0)
        assert watch.look(ranks, 50_900.0) == Look(again_at=51_000.0)
        assert watch.look(ranks, 51_000.0).warning == Hang((0,), since=50_000.0)

    def test_output_and_heartbeats_put_it_off(self) -> None:
        watch = ProgressWatch(OFF, START)
        ranks = self.usual(2000.0, 1.0) | {1: Activity(heartbeat(2100.0), last_output=2200.0)}
        assert watch.look(ranks, 2299.0) == Look(again_at=2500.0)

    @pytest.mark.parametrize("steps", [0, 1])
    def test_without_a_usual_step_there_is_nothing_to_compare_with(self, steps: int) -> None:
        watch = ProgressWatch(OFF, START)
        ranks = {0: Activity(beat(1500.0, steps=steps) if steps else Beat())}
        assert watch.look(ranks, 90_000.0) == Look(again_at=90_300.0)

    def test_an_agent_that_slept_does_not_warn_of_its_own_sleep(self) -> None:
        watch = ProgressWatch(OFF, START)
        ranks = self.usual(2000.0, 1.0)
        assert watch.look(ranks, 2100.0) == Look(again_at=2300.0)
        assert watch.look(ranks, 8000.0) == Look(again_at=8300.0)

    def test_it_never_calls_it_a_hang(self) -> None:
        watch = ProgressWatch(OFF, START)
        assert watch.look(self.usual(2000.0, 1.0), 10_000_000.0).hang is None


def test_it_is_never_asked_to_look_at_a_time_that_has_passed() -> None:
    """Otherwise the agent would spin."""
    for settings in (ON, OFF):
        watch = ProgressWatch(settings, START)
        ranks = stepped(1005.0)
        now = START
        for _ in range(50):
            look = watch.look(ranks, now)
            if look.again_at is None:
                break
            assert look.again_at > now
            now = look.again_at
