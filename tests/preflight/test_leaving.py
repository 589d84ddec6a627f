"""Who leaves after a check, and whether the job goes on."""

from dlrover_cli.preflight.judging import Finding, Standing
from dlrover_cli.preflight.leaving import Ground, Verdict, settle

SOUND, SLOW, FAULTY = Standing.SOUND, Standing.SLOW, Standing.FAULTY


def findings(*standings: Standing) -> list[Finding]:
    """The later a slow node comes, the slower it is."""
    return [Finding(n, each, "why", n + 3.0) for n, each in enumerate(standings)]


def test_a_faulty_node_leaves_and_the_others_go_on() -> None:
    verdict = settle(findings(SOUND, FAULTY, SOUND), Ground(2), excludes=False)
    assert (verdict.leaving, verdict.ends) == ((1,), "")


def test_a_faulty_node_leaves_even_if_too_few_are_left() -> None:
    verdict = settle(findings(SOUND, FAULTY), Ground(2), excludes=False)
    assert (verdict.leaving, verdict.ends) == ((1,), "")


def test_a_slow_node_stays_unless_it_is_to_be_left_out() -> None:
    assert settle(findings(SOUND, SLOW, SOUND), Ground(2), excludes=False).leaving == ()
    assert settle(findings(SOUND, SLOW, SOUND), Ground(2), excludes=True).leaving == (1,)


def test_only_as_many_slow_nodes_leave_as_the_job_can_spare_the_slowest_first() -> None:
    verdict = settle(findings(SOUND, SLOW, SLOW, SOUND), Ground(3), excludes=True)
    assert verdict.leaving == (2,)
    assert verdict.kept == {1: "the job needs at least 3"}


def test_a_faulty_node_counts_when_slow_ones_are_spared() -> None:
    verdict = settle(findings(SOUND, SLOW, FAULTY), Ground(2), excludes=True)
    assert verdict.leaving == (2,)


def test_a_slow_node_that_hosts_the_store_stays() -> None:
    verdict = settle(findings(SLOW, SOUND, SOUND), Ground(1, {0}), excludes=True)
    assert verdict.leaving == ()
    assert "store" in verdict.kept[0]


def test_a_faulty_node_that_hosts_the_store_ends_the_job() -> None:
    verdict = settle(findings(FAULTY, SOUND), Ground(1, {0}), excludes=False)
    assert verdict.leaving == (0,)
    assert verdict.ends == "the store where the nodes meet goes with node 0"


def test_a_rendezvous_that_cannot_shrink_ends_with_a_faulty_node() -> None:
    ground = Ground(2, may_shrink=False)
    assert "without node 1" in settle(findings(SOUND, FAULTY), ground, excludes=False).ends
    kept = settle(findings(SOUND, SLOW), ground, excludes=True)
    assert (kept.leaving, kept.ends) == ((), "")
    assert 1 in kept.kept


def test_a_single_faulty_node_speaks_for_itself() -> None:
    verdict = settle(findings(FAULTY), Ground(1, {0}, may_shrink=False), excludes=False)
    assert (verdict.leaving, verdict.ends) == ((0,), "")


def test_a_verdict_survives_its_json() -> None:
    verdict = Verdict(tuple(findings(SOUND, SLOW)), (1,), ends="why")
    assert Verdict.from_json(verdict.to_json()) == verdict
