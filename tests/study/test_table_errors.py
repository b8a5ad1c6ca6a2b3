"""A wrong value in a table of a study, a site file or a method in Python: what it must be, and what was found."""

from __future__ import annotations

from typing import Any

import pytest

import comity
from comity.data import clinic_schema
from comity.errors import BadInput
from comity.methods.tables import validate
from comity.site.site_file import PolicyTable


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rounds": "atuo"}, "averaging.rounds must be a whole number or 'auto' (did you mean auto?), found 'atuo'"),
        ({"rounds": "10"}, "averaging.rounds must be a number, found '10'"),
        ({"sizes": {"north": True}}, "averaging.sizes.north must be a number, found true"),
        ({"bins": 1}, "averaging.bins must be true or false, found 1"),
        ({"model": "logistik"}, "(did you mean logistic?), found 'logistik'"),
    ],
)
def test_an_option_of_a_method_keeps_its_type(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as refused:
        comity.Averaging(clinic_schema("readmitted"), **options)
    assert str(refused.value).endswith(sentence)


def test_numbers_of_numpy_are_numbers() -> None:
    import numpy as np

    assert comity.Averaging(clinic_schema("readmitted"), sizes=np.int64(300)).sizes == 300


@pytest.mark.parametrize("value", ["1", True])
def test_a_policy_is_written_with_numbers(value: object) -> None:
    with pytest.raises(BadInput, match=r"site\.toml: policy\.epsilon_per_study must be a number"):
        validate(PolicyTable, {"epsilon_per_study": value}, "site.toml", "policy.")
