"""Whom a study of columns holds against, in words: what it assumes of a dealer, and who reads what is released."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from comity.federation.declare.consortium import Consortium
from comity.methods.by_columns.protocol import NOT_AGAINST, ByColumns
from comity.privacy.loss import Pure

ASSUMED = "the sensitivity assumes that the coordinator deals correctly"


@pytest.mark.parametrize("products", ["dealer", "rlwe"])
@pytest.mark.parametrize("alignment", ["keyed", "none"])
@pytest.mark.parametrize("colluders", [0, 1])
@pytest.mark.parametrize("released", ["the model", None])
def test_the_adversary_in_words(products: str, alignment: str, colluders: int, released: str | None) -> None:
    consortium = Consortium(parties=("ash", "birch", "cedar"), loss=Pure(1), colluders=colluders)
    method: Any = SimpleNamespace(products=products, alignment=alignment)
    said = ByColumns.describe_adversary(method, consortium, released, also=", and each party by itself")
    assert ", and each party by itself" in said and said.startswith("an honest-but-curious coordinator")
    assert (ASSUMED in said) == (products == "dealer") and said.endswith(NOT_AGAINST)
    trusted = products == "dealer" or alignment == "keyed"
    assert ("works with no party" in said) == trusted
    assert ("who keeps the model to itself" in said) == (released is not None and not colluders and not trusted)
    assert ("up to 1 of 3 parties" in said) == bool(colluders)
