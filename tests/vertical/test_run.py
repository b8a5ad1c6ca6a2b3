"""Whole runs: the secure one opens what one place would compute, for any number of parties, and nobody sees more."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Any, cast

import numpy as np
import pytest

from comity.crypto.packed_words import unpack_words
from comity.errors import DataError, Stopped, StudyError
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.lifecycle import Lifecycle
from comity.federation.messages.ask import StepPath
from comity.federation.messages.codec import decode
from comity.federation.messages.letters import Head
from comity.federation.owner.mailbox import Mailbox
from comity.federation.owner.site import Site
from comity.federation.sum.site import SecureSum
from comity.methods.vertical.centralised import add_noise, pool_columns
from comity.methods.vertical.design import PLACES
from comity.methods.vertical.moments import fit_regression
from comity.privacy.loss import Approx, Pure
from comity.privacy.randomness import SeededNoise
from comity.study.simulation.simulate import Terms, simulate
from tests.support.noise import NoNoise
from tests.support.vertical import build_regression, encode_parts, host_parties, make_consortium, make_people

ROWS = 900


def exact(tried: Any, frame: Any) -> Any:
    return tried.entries.exact(pool_columns(tried.design, list(encode_parts(tried, frame).values())))


def opened(tried: Any, frame: Any, consortium: Any = None, noise: Any = None) -> Any:
    """What the secure sum opens to the coordinator."""
    found: Any = []
    consortium = consortium or make_consortium(tried)
    parties, _ = host_parties(tried, encode_parts(tried, frame), consortium, noise or NoNoise())
    inner = type(tried).fit
    try:
        type(tried).fit = lambda self, values, rows, which: (found.append(values), inner(self, values, rows, which))[1]
        released = run(parties)
    finally:
        type(tried).fit = inner
    return found[0], released, parties


@pytest.mark.parametrize("parties", [2, 3, 4])
@pytest.mark.parametrize("products", ["rlwe", "dealer"])
@pytest.mark.parametrize("pure", [False, True])
def test_a_secure_run_opens_what_one_place_computes(parties: int, products: str, pure: bool) -> None:
    tried, frame = build_regression(parties, products=products, pure=pure), make_people(ROWS)
    values, released, _ = opened(tried, frame)
    # With rlwe an entry may be one unit beside, times its weight.
    allowed = 7 * 4.0**-PLACES * 1.01 if products == "rlwe" else 1e-12
    np.testing.assert_allclose(values, exact(tried, frame), atol=allowed)
    plain = tried.fit(exact(tried, frame), ROWS, make_consortium(tried))
    np.testing.assert_allclose(released["model"], plain.coef, atol=1e-4)


@pytest.mark.parametrize("linear", [False, True])
def test_the_model_does_not_depend_on_who_holds_what(linear: bool) -> None:
    frame = make_people(ROWS, linear=linear)
    models = [opened(build_regression(k, linear=linear, products="dealer"), frame)[1]["model"] for k in (2, 3, 4)]
    # What is shrunk follows the noise, which is laid out for K − 1 parts; without noise in the data it moves a little.
    # A classifier of few rows keeps its direction, and is longer where there is less noise.
    for model in models[1:]:
        if linear:
            np.testing.assert_allclose(model, models[0], rtol=0.2, atol=0.05)
        else:
            assert model @ models[0] > 0.97 * np.linalg.norm(model) * np.linalg.norm(models[0])


@pytest.mark.parametrize("colluders", [0, 1])
@pytest.mark.parametrize("parties", [2, 4])
def test_noise_has_the_variance_of_one_place_times_the_parties_over_the_honest_ones(
    parties: int, colluders: int
) -> None:
    """At t = 0 the same for every K; at t = 1 K/(K − 1) times as much. Over 60 draws: a relative error of 0.09."""
    tried, frame = build_regression(parties, products="dealer"), make_people(200)
    consortium = make_consortium(tried, colluders=colluders)
    off = np.concatenate(
        [opened(tried, frame, consortium, SeededNoise(seed))[0] - exact(tried, frame) for seed in range(3)]
    )
    alone = make_consortium(tried, colluders=0)
    release = tried.moments(alone.loss)
    scale = release.scale(alone)
    curator = scale.total * scale.grid
    assert off.std() == pytest.approx(curator * sqrt(parties / (parties - colluders)), rel=0.3)
    assert tried.deviation(consortium) == pytest.approx(curator * sqrt(parties / (parties - colluders)), rel=1e-3)


def test_one_place_and_hosts_draw_noise_of_the_same_size() -> None:
    tried, frame = build_regression(3, products="dealer", pure=True), make_people(200)
    consortium = make_consortium(tried)
    plain = exact(tried, frame)
    one = np.concatenate([add_noise(tried, plain, consortium, SeededNoise(s)) - plain for s in range(20)])
    assert np.sqrt(np.mean(one**2)) == pytest.approx(tried.deviation(consortium), rel=0.15)
    hosts = np.concatenate([opened(tried, frame, consortium, SeededNoise(100 + s))[0] - plain for s in range(4)])
    assert np.sqrt(np.mean(hosts**2)) == pytest.approx(tried.deviation(consortium), rel=0.35)


@pytest.mark.parametrize("method", ["keyed", "ecdh"])
def test_rows_are_aligned_by_identifier_before_they_are_multiplied(method: str) -> None:
    frame = make_people(60)
    tried = build_regression(2, identifier=True, alignment=method, products="dealer")
    shuffled = {
        "ash": encode_parts(tried, frame.iloc[5:])["ash"],
        "birch": encode_parts(tried, frame.iloc[:50].sample(frac=1, random_state=3))["birch"],
    }
    consortium = make_consortium(tried)
    parties, _ = host_parties(tried, shuffled, consortium, NoNoise())
    released = run(parties)
    wanted = tried.fit(exact(tried, frame.iloc[5:50]), 45, consortium)
    np.testing.assert_allclose(released["model"], wanted.coef, atol=1e-6)


def test_parties_without_a_common_person_end_the_study_with_a_reason() -> None:
    frame = make_people(40)
    tried = build_regression(2, identifier=True, alignment="keyed")
    records = {
        "ash": encode_parts(tried, frame.iloc[:20])["ash"],
        "birch": encode_parts(tried, frame.iloc[20:])["birch"],
    }
    parties, _ = host_parties(tried, records, make_consortium(tried), NoNoise())
    with pytest.raises(DataError, match="share nobody"):
        run(parties)


def test_different_numbers_of_rows_without_an_identifier_are_refused_before_anything_is_spent() -> None:
    frame = make_people(40)
    tried = build_regression(2)
    records = {**encode_parts(tried, frame), "ash": encode_parts(tried, frame.iloc[:30])["ash"]}
    parties, hosts = host_parties(tried, records, make_consortium(tried), NoNoise())
    with pytest.raises(DataError, match="identifier"):
        run(parties)
    assert hosts["ash"].store.ledger.summary()[0].spent.gaussian == 0


@pytest.mark.parametrize("products", ["rlwe", "dealer"])
def test_no_participant_sees_an_exact_sum_of_products(products: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator reads every reply; a party reads what was sealed to it and its own state."""
    letters: dict[Any, Any] = {}
    original = Mailbox.open

    def reading(site: Any, letter: Any) -> None:
        original(site, letter)
        head = Head.of(letter)
        letters.setdefault(site.party, []).append(decode(site.effects.state[f"in:{head.name}:{head.sender}"]))

    monkeypatch.setattr(Mailbox, "open", reading)
    tried, frame = build_regression(3, products=products), make_people(ROWS)
    consortium = make_consortium(tried)
    parties, hosts = host_parties(tried, encode_parts(tried, frame), consortium, NoNoise())
    begin(parties)
    tried.coordinate(parties)
    units = np.rint(exact(tried, frame) * 4.0**PLACES).astype(np.int64)
    cross = np.array(
        [
            tried.design.width > second and _holder(tried, first) != _holder(tried, second)
            for first, second in zip(tried.entries.first, tried.entries.second)
        ]
    )
    weight = tried.entries.weight
    truth = np.concatenate([units[cross], units[cross] // weight[cross]])
    truth = truth[np.abs(truth) > 1 << 16]
    assert len(truth) > 8
    modulus = np.uint64(64 - tried.product.bits)
    forbidden = np.concatenate([truth.view(np.uint64), truth.view(np.uint64) << modulus])
    shown = {"masked_columns"} if products == "dealer" else set()
    own = {
        "size",
        "moments",
        *shown,
        *(release.name for part in (Lifecycle(), SecureSum()) for release in part.declare(consortium).releases),
    }
    seen = 0
    for path, exchanges in parties.journal.traffic(parties.study, parties.run):
        for exchange in exchanges.values():
            values = decode(exchange.reply or b"")["ok"]
            assert set(values) <= own, path
            if "moments" in values:
                seen += 1
                assert not np.isin(forbidden, values["moments"]).any()
    assert seen == 3
    if shown:
        for reply in parties.under("product").ask("mask", label=0, rows=ROWS).values():
            words = unpack_words(reply["masked_columns"], reply["masked_columns"]["low"].size)
            # A column's entry is a small integer; of what is shown, no word comes twice.
            assert np.unique(words).size == words.size and not np.isin(forbidden, words).any()
    for name, host in hosts.items():
        held = list(_arrays(host, tried, parties, letters.get(name, [])))
        # Two shares, and with rlwe from each peer a matrix of encrypted columns at least.
        assert len(held) >= (4 if products == "rlwe" else 2)
        for one in held:
            # Ciphertexts come in words of 32 bits, of which one in thousands may be some sum by chance.
            by_chance = 1 if one.itemsize < 8 else 0
            assert np.isin(forbidden, one.astype(np.uint64)).sum() <= by_chance, name


def _holder(tried: Any, place: Any) -> Any:
    return next((p.party for p in tried.design.pieces if p.start <= place < p.stop), None)


def _arrays(host: Any, tried: Any, parties: Any, letters: Any) -> Iterator[Any]:
    site = Site(host, parties.run, StepPath("", "contribute", "0"), "moments")
    for share in tried.product.shares(site, site.dims["rows"]).values():
        yield share.reshape(-1)
    for value in letters:
        found = list(value.values()) if isinstance(value, dict) else [value]
        yield from (one.reshape(-1) for one in found if isinstance(one, np.ndarray))


def test_every_party_pays_once_and_the_plan_shows_the_price_of_colluders() -> None:
    tried, frame = build_regression(3), make_people(300)
    records = encode_parts(tried, frame)
    found = simulate(
        tried, parties=records, epsilon=0.5, delta=1e-6, unit="record", terms=Terms(colluders=1, schema=tried.schema)
    )
    assert found.guarantee.private and found.guarantee.epsilon <= 0.5
    assert len({account.spent for account in found.accounts}) == 1
    text = found.plan.as_text()
    assert "1.5 times the variance" in text and "up to 1 of 3 parties" in text
    assert "eps about a party's own columns alone" in text


def test_at_no_colluders_no_party_reads_the_model() -> None:
    tried = build_regression(2)
    declared = tried.declare(make_consortium(tried, colluders=0))
    assert {declared[name].to for name in ("moments", "model", "errors")} == {"coordinator"}
    declared.accept(make_consortium(tried, colluders=0))
    assert tried.declare(make_consortium(tried, colluders=1))["model"].to == "everyone"


def test_wrong_terms_are_found_before_anything_runs() -> None:
    tried = build_regression(2)
    with pytest.raises(StudyError, match="delta"):
        tried.declare(make_consortium(tried, Pure(1)))
    with pytest.raises(StudyError, match="delta"):
        build_regression(2, pure=True).declare(make_consortium(tried, Approx(1, 1e-5)))
    with pytest.raises(StudyError, match="columns"):
        tried.declare(make_consortium(build_regression(3)))
    with pytest.raises(StudyError, match="identifier"):
        build_regression(2, alignment="keyed")
    with pytest.raises(StudyError, match="max_rows"):
        build_regression(2, max_rows=1)
    parties, _ = host_parties(
        build_regression(2, max_rows=20), encode_parts(tried, make_people(40)), make_consortium(tried), NoNoise()
    )
    with pytest.raises(Stopped):
        run(parties)


def test_the_pooled_fit_is_least_squares() -> None:
    tried, frame = build_regression(2, linear=True), make_people(4000, linear=True)
    found = fit_regression(tried.entries, exact(tried, frame), len(frame), 0.0)
    encoded = tried.encoding.encode(frame).records
    wanted = np.linalg.lstsq(encoded.features, cast(Any, encoded.labels) / 5 - 1, rcond=None)[0]
    np.testing.assert_allclose(encoded.features @ found.coef, encoded.features @ wanted, atol=2e-3)
