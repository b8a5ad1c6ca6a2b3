"""Methods that run on an owner's engine: what their steps hand to `site.total` can be sent to workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cloudpickle
import pytest

from comity import Averaging
from comity.data import Encoding, Numeric
from comity.federation.owner.block_sums import BlockSum
from comity.federation.owner.site import Site
from comity.protocol import RunOptions, Terms, simulate
from tests.synthetic.consortia import build_synthetic, make_frame, make_schema

SCHEMA = make_schema()
# A number without bins, whose edges are measured.
WIDE = replace(
    SCHEMA, columns=(*SCHEMA.columns[:1], Numeric("income", 0.0, 100_000.0, missing="cell"), *SCHEMA.columns[2:])
)
ENCODING = Encoding(SCHEMA, scaling="unit")
FRAMES = {name: make_frame(200, seed) for seed, name in enumerate(("ash", "birch", "cedar"))}
OPTIONS = RunOptions(baselines=False, hosts=True)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what was sent. Every sum runs with what a worker would receive."""
    sizes: list[int] = []
    total: Callable[..., Any] = Site.total

    def over_there(site: Site, part: Any, *, prepare: Any = None, **more: Any) -> Any:
        text = cloudpickle.dumps(BlockSum(part, 1, None, prepare, exact=True))
        sizes.append(len(text))
        arrived = cloudpickle.loads(text)
        return total(site, arrived.part, prepare=arrived.prepare, **more)

    monkeypatch.setattr(Site, "total", over_there)
    return sizes


def run(protocol: Any, delta: float, neighbours: str) -> Any:
    parties = {name: protocol.encoding.encode(frame).records for name, frame in FRAMES.items()}
    return simulate(
        protocol,
        parties=parties,
        epsilon=1.0,
        delta=delta,
        unit="record",
        seed=3,
        terms=Terms(neighbours=neighbours),
        options=OPTIONS,
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"by_owner": True},
        {"rounds": 2},
        {"triples": "counted", "by_owner": True},
        {"schema": WIDE, "edges": "measured"},
        {"schema": WIDE, "edges": "measured", "triples": "counted"},
        {"model": "naive-bayes"},
    ],
    ids=lambda options: " ".join(f"{key}={value}" for key, value in options.items() if key != "schema") or "default",
)
def test_counts_can_be_sent(sent: list[int], options: dict[str, Any]) -> None:
    found = run(build_synthetic(**{"schema": SCHEMA, **options}), 1e-6, "add-remove")
    assert len(sent) >= len(FRAMES) and found.released["tables"]["counts"].any()


@pytest.mark.parametrize("solver", ["gradient", "moments"])
def test_sums_of_averaging_can_be_sent(sent: list[int], solver: Any) -> None:
    run(Averaging.over_rows(features=ENCODING.width, sizes=200, solver=solver, encoding=ENCODING), 1e-6, "replace")
    assert len(sent) >= len(FRAMES)


def test_what_holds_a_site_can_not_be_sent() -> None:
    site = Site.__new__(Site)
    with pytest.raises(TypeError, match="keys"):
        cloudpickle.dumps(BlockSum(lambda rows: rows.features * len(site.party), 1))
