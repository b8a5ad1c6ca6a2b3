"""What a gradient round may tell: bounds by brute force, audits with broken twins, and what each participant sees."""

from __future__ import annotations

import numpy as np
import pytest

from comity.audit import gdp_lower_bound
from comity.federation.codec import decode
from comity.federation.paths import StepPath
from comity.federation.site import Site
from comity.privacy.accounting import gdp_epsilon
from comity.privacy.loss import Approx
from comity.privacy.permit import Permit
from comity.privacy.randomness import SeededNoise
from comity.protocols.vertical.columns import LABEL, PLACES
from comity.protocols.vertical.gradients_in_one_place import exact_sums
from comity.protocols.vertical.response import gradient_sensitivity, limits, partial_scores, response_places, responses
from tests.federation.channels import WholeLocal
from tests.federation.toy import begin

from .consortia import NoNoise, consortium, hosted, parts, people
from .test_gradients import ROWS, columns_of, protocol
from .test_sensitivity import every_record


def every_features(layout):
    """Features (the constant last) of every record on a coarse grid of the schema."""
    rows = every_record(layout)
    keep = np.ones(layout.width, bool)
    for piece in layout.pieces:
        if piece.kind == LABEL:
            keep[piece.start : piece.stop] = False
    return np.unique(np.column_stack([rows[:, keep], np.full(len(rows), layout.constant)]), axis=0), rows


def single_sums(tried, weights):
    """Σ x s(z) of each single record."""
    _, rows = every_features(tried.layout)
    grid = 2.0 ** -(response_places(tried.descent.places) + PLACES)
    out = []
    for row in rows:
        columns = {party: row[None, tried.layout.places(party)] for party in tried.columns}
        out.append(grid * exact_sums(tried.descent, columns, weights))
    return np.unique(np.array(out), axis=0)


def furthest(found):
    squares = (found**2).sum(axis=1)
    apart = squares[:, None] + squares[None] - 2 * found @ found.T
    at = np.unravel_index(apart.argmax(), apart.shape)
    return float(np.sqrt(apart.max())), found[at[0]], found[at[1]]


def worst(tried, tries):
    """The furthest pair over many weights: random ones, and large ones that put all records at an end."""
    generator, best = np.random.default_rng(5), (0.0, None, None)
    constant = np.zeros(tried.descent.size)
    constant[-1] = 3.2 / tried.layout.constant
    candidates = [constant + 0.3 * generator.normal(size=len(constant)) for _ in range(tries // 2)]
    candidates += [10.0 ** generator.uniform(-1, 3) * generator.normal(size=len(constant)) for _ in range(tries // 2)]
    for weights in candidates:
        best = max(best, furthest(single_sums(tried, weights)), key=lambda one: one[0])
    return best


@pytest.mark.parametrize("parties", [2, 3])
def test_no_replacement_moves_a_round_further_than_declared(parties):
    tried = protocol(parties)
    found, *_ = worst(tried, 20)
    assert 0.55 * gradient_sensitivity(tried.layout) < found <= gradient_sensitivity(tried.layout)


def opposite(tried):
    """Sums of two records of which one number at each party differs by a hundredth, and of which the weights make
    opposite scores."""
    layout, size = tried.layout, tried.descent.size
    pieces, weights = {piece.column: piece for piece in layout.pieces}, np.zeros(size)
    place = {
        column: int(np.flatnonzero(layout.features == piece.start)[0])
        for column, piece in pieces.items()
        if column != "sick"
    }
    high = {column: float(pieces[column].table[0, 0]) for column in ("age", "dose")}
    middle, steep = 0.995, 1.63 / 0.005
    weights[place["age"]], weights[-1] = steep / high["age"], -steep * middle / layout.constant
    weights[place["dose"]] = steep / high["dose"]
    # Sex is at its high end in both: it carries the other party's constant.
    sex = float(pieces["sex"].table[1, 0])
    weights[place["sex"]] = -steep * middle / sex
    sums = []
    for share in (1.0, 0.99):
        row = np.zeros(layout.width)
        for column, piece in pieces.items():
            row[piece.start : piece.stop] = share * piece.table[0] if column in high else piece.table[-1]
        columns = {party: row[None, layout.places(party)] for party in tried.columns}
        sums.append(exact_sums(tried.descent, columns, weights) * tried.gradient(consortium(tried).loss).grid)
    return sums


def test_two_records_that_hardly_differ_nearly_attain_the_bound():
    tried = protocol(2)
    first, second = opposite(tried)
    apart = np.linalg.norm(first - second)
    assert 0.95 * gradient_sensitivity(tried.layout) < apart <= gradient_sensitivity(tried.layout)


def test_positive_control_unclipped_scores_break_the_bound():
    tried = protocol(2)
    features, _ = every_features(tried.layout)
    weights = 8 * np.random.default_rng(5).normal(size=features.shape[1])
    z = features @ weights
    found, *_ = furthest(features * (z - z**3 / 32)[:, None])
    assert found > gradient_sensitivity(tried.layout)


def audit_scores(tried, who, parts_left, shrink=1.0):
    """Likelihood scores of a round's opened sum with `parts_left` parts of the noise, under either neighbour."""
    release = tried.gradient(who.loss)
    scale, noise = release.scale(who), release.noise
    first, second = opposite(tried)
    step = np.rint((second - first) / scale.grid)
    step = step[np.abs(step) > 0]
    out, draws = [], 60_000
    for place, shift in enumerate((0.0, 1.0)):
        drawn = np.zeros((draws, len(step)))
        for part in range(parts_left):
            source = SeededNoise(10 * place + part)
            drawn += noise.draw(source, scale, drawn.shape, permit=Permit("gradient", 0), part=True)
        out.append((shift * step + shrink * drawn) @ (step / np.linalg.norm(step) / scale.total))
    return out


def allowed(tried, who):
    """ε at δ = 1e-5 of one round's μ, for a Gaussian mechanism."""
    return gdp_epsilon(float(tried.gradient(who.loss).loss.square), 1e-5)


def test_a_round_loses_no_more_than_it_claims():
    tried = protocol(2, rounds=1)
    who = consortium(tried, Approx(4, 1e-5))
    found = gdp_lower_bound(*audit_scores(tried, who, 1), delta=1e-5, confidence=1 - 1e-7)
    assert 0.55 * allowed(tried, who) < found <= allowed(tried, who)


def test_a_round_with_half_of_the_noise_is_caught():
    tried = protocol(2, rounds=1)
    who = consortium(tried, Approx(4, 1e-5))
    caught = gdp_lower_bound(*audit_scores(tried, who, 1, shrink=1 / 2), delta=1e-5, confidence=1 - 1e-7)
    assert caught > allowed(tried, who)


def test_no_participant_sees_a_partial_score_a_response_or_an_exact_gradient(monkeypatch):
    tried, frame = protocol(3, rounds=2), people(ROWS)
    who = consortium(tried)
    parties, hosts = hosted(tried, parts(tried, frame), who, NoNoise())
    parties.channel = WholeLocal(hosts)
    seen_weights, carry = [], parties.channel.carry

    def watched(messages):
        for message in messages.values():
            found = _arrays(decode(message[:-64]))
            seen_weights.extend(one for one in found if one.dtype == np.float64 and one.size == tried.descent.size)
        return carry(messages)

    parties.channel.carry = watched
    take, taken = Site.take, {}

    def taking(site, name, senders=None):
        found = taken[site.party, name] = take(site, name, senders)
        return found

    monkeypatch.setattr(Site, "take", taking)
    begin(parties)
    tried.coordinate(parties)
    weights = np.unique(np.array(seen_weights), axis=0)
    assert len(weights) == 2
    columns, rounds = columns_of(tried, frame), tried.descent
    part, forbidden = limits(tried.layout, rounds.places), []
    for w in weights:
        total = 0
        for party, own in columns.items():
            scores = partial_scores(
                rounds.features(own, party), *rounds.own_weights(party, w), part[party], rounds.places
            )
            total = total + scores
        forbidden += [responses(total, rounds.places), exact_sums(rounds, columns, w)]
    forbidden = np.concatenate(forbidden)
    forbidden = np.unique(forbidden[np.abs(forbidden) > 1 << 16]).view(np.uint64)
    assert len(forbidden) > 100
    for path, exchanges in parties.journal.traffic(parties.study, parties.run):
        for exchange in exchanges.values():
            for held in _arrays(decode(exchange.reply)["ok"]):
                assert not np.isin(forbidden, held.reshape(-1).astype(np.uint64)).any(), path
    small = set(range(1 << 20))
    monkeypatch.setattr(Site, "take", lambda site, name, senders=None: taken[site.party, name])
    for name, host in hosts.items():
        site = Site(host, parties.run, StepPath("", "descend", "1"), "gradient")
        letters = [site.received("masked_features"), taken[name, "masked_scores"], taken[name, "masked_responses"]]
        for held in [*_arrays(letters), rounds.share(site, 1)]:
            words = held.reshape(-1)
            assert not np.isin(forbidden, words).any(), name
            # A partial score or a feature is a small integer; uniform words are not.
            assert not any(int(word) in small or 2**64 - int(word) in small for word in words[:2000])


def _arrays(value):
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, bytes) and len(value) > 8:
        try:
            return _arrays(decode(value))
        except Exception:
            return []
    if isinstance(value, dict):
        value = list(value.values())
    return [found for one in value for found in _arrays(one)] if isinstance(value, list | tuple) else []
