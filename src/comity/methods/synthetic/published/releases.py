"""What leaves an owner of the published method: private choices of splits, noisy leaves and counts, and what is made of
them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comity.federation.declare.consortium import COORDINATOR, EVERYONE, ITSELF
from comity.federation.declare.declaration import PRIVATE, Release
from comity.federation.declare.protection import Computed, Derived
from comity.federation.declare.release import Array, Each, Fields
from comity.methods.synthetic.published.budget import Budget
from comity.methods.synthetic.published.forms import OneOf, Rows
from comity.methods.synthetic.published.shape import Shape
from comity.privacy.loss import Pure

# Room for records: least squares leave about as many as there are, noise that is cut at zero many times more.
MOST_RECORDS = 1 << 20


def releases_of(
    shapes: Sequence[Shape], budget: Budget, source: str, *, classes: int, columns: int, levels: int
) -> tuple[Release, ...]:
    """For owners with trees of these shapes; `levels` is of how many sizes are taken, 0 where leaves are left alone."""

    def made(name: str, to: str, protection: Computed | Derived, form: Any) -> Release:
        return Release(name=name, source=source, to=to, protection=protection, form=form)

    def sent(name: str, to: str, of: str, form: Any) -> Release:
        return Release(name=name, source=COORDINATOR, to=to, protection=Derived(of), form=form)

    splits = tuple(
        made(
            split_name(number),
            ITSELF,
            Computed(budget.choice),
            OneOf(_distinct(Array((shape.choices[number],), "<i8") for shape in shapes)),
        )
        for number in range(len(shapes[0].levels))
    )
    leaves = OneOf(_distinct(Array((shape.leaves, classes), "<i8") for shape in shapes))
    sizes = OneOf(_distinct(Array((_counted(shape, levels),), "<i8") for shape in shapes))
    counted = (made("counts", ITSELF, Computed(budget.counts), sizes),) if levels else ()
    tree, rows = OneOf(_distinct(_tree_form(shape, classes) for shape in shapes)), Rows(columns, MOST_RECORDS)
    return (
        *splits,
        made("leaves", ITSELF, Computed(budget.leaves), leaves),
        *counted,
        made("tree", COORDINATOR, Derived(*(release.name for release in splits), "leaves"), tree),
        sent("trees", source, "tree", Each(tree)),
        made("dataset", COORDINATOR, Derived("trees", *(release.name for release in counted)), rows),
        sent("datasets", EVERYONE, "dataset", Each(rows)),
    )


def _counted(shape: Shape, levels: int) -> int:
    return sum(level.nodes for level in shape.levels[: levels - 1])


def claim_of(budget: Budget) -> str:
    if budget.total <= budget.epsilon:
        return PRIVATE
    return (
        f"not private as claimed: {Pure(budget.epsilon)} is claimed for a record that is replaced and "
        f"{Pure(budget.total)} is lost, because such a record moves the counts of two nodes; set "
        'privacy.neighbours to "add-remove"'
    )


def split_name(number: int) -> str:
    return f"split_{number + 1}"


def _tree_form(shape: Shape, classes: int) -> Fields:
    nodes = sum(level.nodes for level in shape.levels)
    return Fields({"thresholds": Array((nodes,)), "counts": Array((shape.leaves, classes), "<i8")})


def _distinct(forms: Any) -> tuple[Any, ...]:
    found: list[Any] = []
    for form in forms:
        if form not in found:
            found.append(form)
    return tuple(found)
