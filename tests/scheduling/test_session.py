"""A session asks in one order, starts gangs or nothing of them, and always closes."""

import threading
from dataclasses import replace

import pytest

from dlrover_cli.scheduling.builtins import Preference, built_ins
from dlrover_cli.scheduling.model import JobView, NodeView, QueueView, TaskStatus, TaskView
from dlrover_cli.scheduling.panel import Panel
from dlrover_cli.scheduling.plugin import Refusal, Vote
from dlrover_cli.scheduling.session import Decisions, hold_session
from tests.scheduling.views import Witness, hold, job, node, view

pytestmark = pytest.mark.timeout(30)


def _started(decisions: Decisions) -> list[str]:
    return [each.name for each in decisions.started]


def test_a_session_asks_everything_in_the_order_of_volcano() -> None:
    witness = Witness(scores={"b": 1.0})

    decisions = hold(view([job("train")], [node("a"), node("b")]), witness)

    assert [verb for verb in witness.verbs if verb != "predicate"] == [
        *("session_open", "job_enqueueable", "job_enqueued", "queue_overused"),
        *("prioritize", "allocated", "job_ready", "session_close"),
    ]
    assert witness.verbs.index("queue_overused") < witness.verbs.index("predicate")
    assert ("allocated", "train-0 b") in witness.calls
    assert _started(decisions) == ["train"]
    assert decisions.enqueued == ("train",)


def test_one_node_that_is_left_is_not_scored() -> None:
    witness = Witness(refuse={"a": "cordoned"})

    decisions = hold(view([job("train")], [node("a"), node("b")]), witness)

    assert "prioritize" not in witness.verbs
    assert decisions.started[0].tasks[0].node == "b"


def test_a_gang_that_is_not_complete_is_taken_back_in_reverse() -> None:
    witness = Witness(refuse_allocation=["gang-2"])

    decisions = hold(view([job("gang", tasks=3)], [node(name) for name in "abc"]), witness)

    assert _started(decisions) == []
    given = [what for verb, what in witness.calls if verb == "allocated"]
    taken = [what for verb, what in witness.calls if verb == "deallocated"]
    assert taken == given[::-1]
    assert decisions.why("gang") == "no"
    assert witness.verbs[-1] == "session_close"


def test_a_job_that_somebody_finds_not_ready_is_taken_back() -> None:
    witness = Witness(ready=False)

    decisions = hold(view([job("train")], [node("a")]), witness)

    assert _started(decisions) == []
    assert witness.balance() == 0
    assert "not ready" in decisions.why("train")


def test_who_was_not_told_of_an_allocation_is_not_told_of_its_end() -> None:
    first, second = Witness(refuse_allocation=["train-0"]), Witness()

    hold(view([job("train")], [node("a")]), first, second)

    assert first.balance() == 0
    assert "allocated" not in second.verbs
    assert "deallocated" not in second.verbs


def test_tasks_beyond_the_minimum_start_where_there_is_room() -> None:
    decisions = hold(view([job("elastic", tasks=4, least=2)], [node("a"), node("b"), node("c")]))

    assert len(decisions.started[0].placed) == 3


def test_a_running_job_grows_into_a_new_node() -> None:
    decisions = hold(view([job("elastic", tasks=2, least=1, on=["a"])], [node("a"), node("b")]))

    assert [task.node for task in decisions.started[0].tasks] == ["a", "b"]


def test_nodes_are_asked_about_once_for_all_tasks_alike() -> None:
    witness = Witness()
    nodes = [node(f"n{number}") for number in range(50)]

    decisions = hold(view([job("gang", tasks=50)], nodes), witness)

    assert len(decisions.started[0].placed) == 50
    assert witness.verbs.count("predicate") == 50
    assert witness.verbs.count("prioritize") == 1


def test_sixteen_nodes_are_asked_about_at_once_and_no_more() -> None:
    class Slow(Witness):
        """No answer before sixteen are asked for, each of which sees how many there are."""

        def __init__(self) -> None:
            super().__init__()
            self.meeting = threading.Barrier(16, timeout=20)
            self.lock, self.asked, self.most = threading.Lock(), 0, 0

        def predicate(self, task: TaskView, node: NodeView) -> Refusal | None:
            with self.lock:
                self.asked += 1
                self.most = max(self.most, self.asked)
            self.meeting.wait()
            with self.lock:
                self.asked -= 1
            return super().predicate(task, node)

    witness = Slow()

    hold(view([job("train")], [node(f"n{index}") for index in range(48)]), witness)

    assert witness.verbs.count("predicate") == 48
    assert witness.most == 16


def test_a_node_that_got_a_task_is_asked_about_again() -> None:
    witness = Witness()

    hold(view([job("pair", tasks=2)], [node("a", cpu=2.0)]), witness)

    assert witness.verbs.count("predicate") == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_a_session_that_is_interrupted_takes_back_and_closes(error: type[BaseException]) -> None:
    class Interrupted(Witness):
        def job_ready(self, job: object) -> bool:
            raise error

    witness = Interrupted()
    with pytest.raises(error):
        hold(view([job("train")], [node("a")]), witness)

    assert witness.balance() == 0
    assert witness.verbs[-2:] == ["deallocated", "session_close"]


@pytest.mark.parametrize(
    "verb",
    [
        *("session_open", "job_enqueueable", "queue_overused", "predicate"),
        *("prioritize", "job_ready", "allocated"),
    ],
)
def test_a_failed_answer_is_a_no_that_names_who_failed(verb: str) -> None:
    witness = Witness(fail=[verb])

    decisions = hold(view([job("train")], [node("a"), node("b")]), witness)

    assert _started(decisions) == []
    assert decisions.why("train").startswith(f"the witness cannot answer {verb}")
    assert witness.balance() == 0
    assert witness.verbs[-1] == "session_close"


@pytest.mark.parametrize("verb", ["job_enqueued", "session_close", "deallocated"])
def test_a_remark_that_is_not_taken_is_said_and_changes_nothing(verb: str) -> None:
    problems: list[str] = []
    witness = Witness(fail=[verb])
    ended = job("ended", on=["a"]).tasks
    panel = Panel(built_ins(), [witness], problems.append)

    decisions = hold_session(view([job("train")], [node("a")]), panel, ["allocate"], released=ended)

    assert _started(decisions) == ["train"]
    assert problems == [f"the witness cannot answer {verb}"]


def test_ended_tasks_are_told_to_all_before_anything_is_decided() -> None:
    witness = Witness()

    hold(view([], [node("a")]), witness, released=job("ended", on=["a"]).tasks)

    assert witness.calls == [
        ("session_open", "s"),
        ("deallocated", "ended-0 a"),
        ("session_close", "s"),
    ]


def test_a_rejected_job_waits_and_keeps_nobody_from_starting() -> None:
    class RejectsOne(Witness):
        def job_enqueueable(self, job: object) -> Vote:
            return Vote.REJECT if getattr(job, "name", "") == "first" else Vote.PERMIT

    decisions = hold(view([job("first"), job("second", submitted=1.0)], [node("a")]), RejectsOne())

    assert _started(decisions) == ["second"]
    assert decisions.why("first") == "rejectsone does not let it into queue default"


def test_a_job_that_its_queue_could_never_hold_says_so() -> None:
    queue = QueueView("default", capacity={"agents": 2.0})

    decisions = hold(view([job("huge", tasks=3)], [node("a", cpu=8.0)], queue))

    assert decisions.why("huge") == "it needs 3 agents, and queue default has 2 in all"


def test_an_unknown_queue_is_named_with_those_that_are_known() -> None:
    decisions = hold(view([job("train", queue="gold")], [node("a")], QueueView("silver")))

    assert decisions.why("train") == ("there is no queue 'gold'; the configuration has: silver")


def test_an_overused_queue_starts_nothing_and_others_do() -> None:
    jobs = [job("one", queue="a"), job("two", queue="b")]
    witness = Witness(overused=["a"])

    decisions = hold(view(jobs, [node("n", cpu=2.0)], QueueView("a"), QueueView("b")), witness)

    assert _started(decisions) == ["two"]
    assert decisions.why("one") == "witness says that queue a is overused"


def test_a_gang_that_waits_for_nodes_is_not_overtaken_for_ever() -> None:
    jobs = [
        job("running", on=["a"]),
        job("gang", tasks=2, submitted=1.0),
        job("small", submitted=2.0),
    ]

    decisions = hold(view(jobs, [node("a"), node("b")]), actions=["allocate", "backfill"])

    assert _started(decisions) == []
    assert decisions.why("small") == "gang is before it and waits for nodes"


def test_backfill_starts_a_small_job_that_takes_nothing_the_gang_needs() -> None:
    jobs = [
        job("running", on=["a"], gpu=1.0),
        job("gang", tasks=2, submitted=1.0, cpu=0.0, gpu=1.0),
        job("small", submitted=2.0),
    ]
    nodes = [node("a", cpu=4.0, gpu=1.0), node("b", cpu=4.0, gpu=1.0)]

    assert _started(hold(view(jobs, nodes), actions=["allocate"])) == []
    assert _started(hold(view(jobs, nodes), actions=["allocate", "backfill"])) == ["small"]


def test_backfill_does_not_take_the_capacity_that_the_gang_of_its_queue_needs() -> None:
    jobs = [
        job("running", on=["a"]),
        job("gang", tasks=2, submitted=1.0),
        job("small", submitted=2.0),
    ]
    queue = QueueView("default", capacity={"agents": 2.0})

    decisions = hold(view(jobs, [node("a", cpu=8.0)], queue))

    assert _started(decisions) == []
    assert decisions.why("small") == "gang of the same queue is before it"


def test_a_gang_that_no_room_would_help_keeps_nobody_waiting() -> None:
    jobs = [job("giant", tasks=9), job("small", submitted=1.0)]

    decisions = hold(view(jobs, [node("a"), node("b")]))

    assert _started(decisions) == ["small"]
    assert decisions.why("giant") == (
        "it needs room for 9 agents at once, and the nodes that it may use have room for 2 in all"
    )


def test_what_a_node_never_has_is_said_before_what_it_has_not_now() -> None:
    jobs = [job("running", on=["a"]), job("greedy", submitted=1.0, gpu=9.0)]

    decisions = hold(view(jobs, [node("a", gpu=8.0)]))

    assert decisions.why("greedy") == "a has 8 gpu, and 9 is needed"
    assert decisions.evictions == ()


def test_preemption_ends_the_least_important_and_only_as_many_as_needed() -> None:
    jobs = [
        job("low", on=["a"], priority=1, submitted=1.0),
        job("lower", on=["b"], priority=0, submitted=0.0),
        job("urgent", priority=9, submitted=2.0),
    ]

    decisions = hold(view(jobs, [node("a"), node("b")]))

    assert [each.job.name for each in decisions.evictions] == ["lower"]
    assert decisions.evictions[0].reason == "preempted by urgent, which has priority 9"
    assert decisions.why("urgent") == "it waits until lower has made room"


def test_nobody_is_preempted_by_an_equal_or_in_vain_or_without_the_action() -> None:
    nodes = [node("a"), node("b")]
    equal = [job("one", on=["a"]), job("two", on=["b"]), job("three", submitted=1.0)]
    in_vain = [job("one", on=["a"], priority=0), job("big", tasks=3, priority=5)]
    possible = [job("one", on=["a"]), job("urgent", tasks=2, priority=5)]

    assert hold(view(equal, nodes)).evictions == ()
    assert hold(view(in_vain, nodes)).evictions == ()
    assert hold(view(possible, nodes), actions=["allocate"]).evictions == ()
    assert len(hold(view(possible, nodes)).evictions) == 1


def test_an_extender_narrows_the_victims_and_an_empty_answer_is_a_veto() -> None:
    jobs = [
        job("low", on=["a"], priority=1),
        job("lower", on=["b"], priority=0),
        job("urgent", priority=9),
    ]
    at = view(jobs, [node("a"), node("b")])

    spared = hold(at, Witness(victims=["low-0"]))
    vetoed = hold(at, Witness(victims=[]))
    failed = hold(at, Witness(fail=["preemptable"]))

    assert [each.job.name for each in spared.evictions] == ["low"]
    assert vetoed.evictions == ()
    assert failed.evictions == ()
    [why] = (vetoed.waiting or {}).values()
    assert why.endswith("; witness allows no victim")
    [why] = (failed.waiting or {}).values()
    assert why.endswith("; the witness cannot answer preemptable")


def test_a_gang_is_a_victim_as_a_whole_or_not_at_all() -> None:
    jobs = [job("pair", tasks=2, on=["a", "b"]), job("urgent", priority=9)]

    decisions = hold(view(jobs, [node("a"), node("b")]), Witness(victims=["pair-0"]))

    assert decisions.evictions == ()


def test_nobody_is_ended_for_a_node_that_the_extender_refuses_for_good() -> None:
    jobs = [job("low", on=["a"]), job("urgent", priority=9)]

    decisions = hold(view(jobs, [node("a")]), Witness(refuse={"a": "bad GPU"}))

    assert decisions.evictions == ()


def test_who_waits_for_an_end_that_was_asked_for_does_not_ask_for_another() -> None:
    jobs = [
        job("low", on=["a"], priority=1),
        job("lower", on=["b"], priority=0),
        job("urgent", priority=9),
    ]
    at = view(jobs, [node("a"), node("b")])
    victim = hold(at).evictions[0].job
    releasing = tuple(each if each.name != victim.name else _releasing(each) for each in at.jobs)

    again = hold(view(releasing, [node("a"), node("b")]))

    assert again.evictions == ()


def test_reclaim_takes_from_the_queue_that_holds_more_and_stops_when_it_is_even() -> None:
    nodes = [node(name) for name in "abcd"]
    rich = [job(f"rich{name}", queue="rich", on=[name]) for name in "abcd"]
    poor = [job(f"poor{number}", queue="poor", submitted=number) for number in range(4)]

    decisions = hold(view([*rich, *poor], nodes, QueueView("rich"), QueueView("poor")))

    assert len(decisions.evictions) == 2
    assert {each.job.queue for each in decisions.evictions} == {"rich"}


def test_phases_come_in_the_order_of_the_actions() -> None:
    jobs = [*(job(f"rich{name}", queue="rich", on=[name]) for name in "ab"), job("x", queue="poor")]
    at = view(jobs, [node("a"), node("b")], QueueView("rich"), QueueView("poor"))

    def asked(*actions: str) -> list[str]:
        witness = Witness()
        hold(at, witness, actions=actions)
        return witness.verbs[witness.verbs.index("queue_overused") : -1]

    allocate = ["queue_overused"]
    reclaim = ["queue_overused", "reclaimable", "predicate", "predicate"]
    assert asked("allocate", "reclaim") == [*allocate, *reclaim]
    assert asked("reclaim", "allocate") == [*reclaim, *allocate]


@pytest.mark.parametrize("preference, chosen", [("packing", "fuller"), ("spread", "emptier")])
def test_nodes_are_packed_or_jobs_are_spread(preference: Preference, chosen: str) -> None:
    jobs = [job("running", on=["fuller"]), job("train", submitted=1.0)]
    at = view(jobs, [node("emptier", cpu=4.0), node("fuller", cpu=4.0)])

    decisions = hold_session(at, Panel(built_ins(preference=preference)), ["allocate"])

    assert decisions.started[0].tasks[0].node == chosen


def test_a_queue_that_is_not_reclaimable_keeps_what_it_has() -> None:
    jobs = [job("rich", queue="rich", on=["a"]), job("poor", queue="poor")]
    queues = QueueView("rich", reclaimable=False), QueueView("poor")

    assert hold(view(jobs, [node("a")], *queues)).evictions == ()


def _releasing(each: JobView) -> JobView:
    tasks = (replace(task, status=TaskStatus.RELEASING) for task in each.tasks)
    return replace(each, tasks=tuple(tasks))


def test_a_place_that_was_taken_back_unheard_is_to_be_told_again() -> None:
    """The service refuses the second agent, and then does not hear that the first is gone, too."""
    witness = Witness(refuse_allocation=["gang-1"], fail=["deallocated"])

    decisions = hold(view([job("gang", tasks=2)], [node("a"), node("b")]), witness)

    assert decisions.started == ()
    assert sorted(task.name for task in decisions.unheard) == ["gang-0", "gang-1"]
    assert all(task.place and task.node for task in decisions.unheard)
