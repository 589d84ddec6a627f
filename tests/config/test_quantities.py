"""Amounts of resources, as people and Kubernetes write them."""

import pytest

from dlrover_cli.config.quantities import parse_quantity


@pytest.mark.parametrize(
    "written, amount",
    [(4, 4.0), (0.5, 0.5), ("4", 4.0), ("500m", 0.5), ("8Gi", 8 * 2.0**30), ("2k", 2000.0)],
)
def test_an_amount_is_read_in_base_units(written: object, amount: float) -> None:
    assert parse_quantity(written) == amount


@pytest.mark.parametrize(
    "written", [-1, True, None, [], "", "x", "8GiB", "1e3", "-1", float("inf"), 10**400]
)
def test_what_is_no_amount_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="is no amount"):
        parse_quantity(written)
