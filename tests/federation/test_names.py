"""Names of parties: one that only looks like another is no name, wherever names enter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.data import Records
from comity.errors import Refused, StudyError
from comity.federation.declare.consortium import MAX_NAME_LENGTH, Consortium, check_party_name, fold, is_party_name
from comity.federation.declare.policy import Policy
from comity.privacy.loss import Approx
from comity.study.local.stacks import NumberedParties
from comity.study.simulation.simulate import simulate
from tests.support.consortia import make_identity
from tests.support.rounds import Rounds

LOOK_ALIKE = {
    "a zero-width character": "sou\u200bth",
    "a Greek letter": "s\u03bfuth",
    "a Cyrillic letter": "s\u043euth",
    "a full-width letter": "\uff53outh",
    "a combining mark": "south\u0301",
    "a blank": "south ",
    "a blank before it": " south",
    "a no-break space": "south\u00a0",
    "a line end": "south\n",
    "a direction mark": "\u202esouth",
    "a full stop": "south.",
    "nothing": "",
    "a hyphen first": "-south",
    "a path": "../south",
    "too many letters": "s" * (MAX_NAME_LENGTH + 1),
}


def make_consortium(*names: Any, **more: Any) -> Consortium:
    return Consortium(parties=names, loss=Approx(1, 1e-6), **more)


@pytest.mark.parametrize("name", LOOK_ALIKE.values(), ids=LOOK_ALIKE)
def test_a_name_that_only_looks_like_another_is_refused(name: str) -> None:
    assert not is_party_name(name)
    with pytest.raises(StudyError, match=r"name of a party has 1 to 32 characters.*rename") as error:
        make_consortium("north", name)
    # The sentence shows what the name is made of.
    assert str(error.value).isascii() and error.value.code == "name" and error.value.key == "parties"


@pytest.mark.parametrize("name", ["south", "South", "p0", "clinic-01", "a", "x_1", "7", "s" * MAX_NAME_LENGTH])
def test_plain_names_pass(name: str) -> None:
    assert check_party_name(name) == name and make_consortium("other", name).size == 2


@pytest.mark.parametrize("name", [3, None, b"south", 1.5, ("a",)])
def test_what_is_no_text_is_no_name(name: object) -> None:
    with pytest.raises(StudyError, match="name of a party"):
        make_consortium("north", name)


def test_two_names_of_one_study_differ_in_more_than_case() -> None:
    for other in ("SOUTH", "south"):
        with pytest.raises(StudyError, match=f"'south' and '{other}' are the same name"):
            make_consortium("north", "south", other)
    assert make_consortium("north", "South").size == 2 and fold("SoUtH") == "south"


@pytest.mark.parametrize("name", ["coordinator", "Coordinator", "EVERYONE", "Itself"])
def test_words_with_a_meaning_are_no_names_in_any_case(name: str) -> None:
    with pytest.raises(StudyError, match="reserved"):
        make_consortium("north", name)


def test_a_role_is_no_party_in_any_case() -> None:
    with pytest.raises(StudyError, match="a role can't be named 'NORTH'"):
        make_consortium("north", "south", roles={"NORTH": ("south",)})


def test_numbered_parties_need_no_look() -> None:
    assert (
        make_consortium(*NumberedParties(3)).size == 3
        and Consortium(parties=NumberedParties(10**6), loss=Approx(1, 1e-6)).size == 10**6
    )


def test_a_simulation_from_python_has_the_same_rule() -> None:
    rows = Records(np.zeros((4, 3)))
    with pytest.raises(StudyError, match="name of a party"):
        simulate(Rounds(), parties={"north": rows, "so\u200buth": rows}, epsilon=50, delta=1e-6)


def test_a_pin_holds_for_a_name_in_other_letters() -> None:
    """`[pinned.south]` is passed by no other spelling of the name, in either direction."""
    theirs, other = make_identity("south").public, make_identity("impostor").public
    for pinned, named in (("south", "SOUTH"), ("South", "south"), ("south", "south")):
        policy = Policy(pinned={pinned: theirs})
        policy.check_pinned(make_consortium("north", named, roster={named: theirs}))
        with pytest.raises(Refused, match=rf"another key of {named} than \[pinned\.{pinned}\]") as error:
            policy.check_pinned(make_consortium("north", named, roster={named: other}))
        assert error.value.code == "keys" and error.value.key == f"pinned.{pinned}"
        with pytest.raises(Refused, match="another key"):
            policy.check_pinned(make_consortium("north", named))
