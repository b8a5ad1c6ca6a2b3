"""A published variant takes the paper's constants; what a study sets itself stays, and is shown beside the paper's."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import pytest

from comity.data import clinic_schema
from comity.federation.protocol import Protocol
from comity.methods import PROTOCOLS, method_of
from comity.methods.constants import Constant
from comity.methods.method import Method, Setting


class Tried(Method):
    table: ClassVar[str] = "tried"
    paper: ClassVar[dict[str, Constant]] = {
        "l2": Constant(1e-4, "section 6.1", "penalty of the fits"),
        "trials": Constant(100, "section 6.2", "runs of each point"),
    }
    variant: Literal["default", "published"] = "default"
    l2: float = 1e-2

    def make_protocol(self, setting: Setting) -> Protocol:
        raise AssertionError("not needed here")


def test_an_option_that_nobody_set_has_the_papers_value() -> None:
    assert Tried().l2 == 1e-2 and not Tried().constants
    published = Tried(variant="published")
    assert published.l2 == 1e-4 and "l2" not in published.model_fields_set
    assert published.options_for_hash()["l2"] == 1e-4
    assert Tried.model_validate({"variant": "published"}).l2 == 1e-4


def test_an_option_that_was_set_stays_beside_the_papers() -> None:
    found = Tried(variant="published", l2=0.5).constants
    assert (found["l2"].in_use, found["l2"].value, found["l2"].is_papers) == (0.5, 1e-4, False)
    assert found["trials"].in_use == 100
    text = repr(found)
    assert "0.5" in text and "0.0001" in text and "section 6.1: penalty of the fits" in text
    assert "the same" in text and "section 6.2" in found._repr_html_()


def test_the_default_has_no_constants_of_a_paper() -> None:
    assert "variant='published'" in repr(Tried().constants)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_constants_say_where_they_are_printed(name: str) -> None:
    method = method_of(name)
    assert method.paper, f"{name} lists no constants of its paper"
    for key, one in method.paper.items():
        assert one.source and one.meaning, key
    needed: dict[str, Any] = {"auxiliary": "public.parquet"} if name == "softlabel" else {}
    made = method(clinic_schema("readmitted"), variant="published", **needed)
    for key, one in made.constants.items():
        # What is no option may say what stands in its place: shares of a dealer for BGN encryption.
        assert one.is_papers or key not in method.model_fields, (
            f"{name}.{key}: {one.in_use} where the paper has {one.value}"
        )
