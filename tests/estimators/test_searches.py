"""Attacks on `guarantee_`: searches, refits and prepared rows that cost more than one fit says."""

from __future__ import annotations

import pickle
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, ShuffleSplit, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from comity.errors import BudgetExceeded
from comity.estimators import AveragedClassifier, AveragedRegressor, SoftLabelClassifier
from comity.estimators.guarantee import widen_guarantee
from comity.privacy.accounting import Spent, gaussian_budget, pure_square
from comity.privacy.ledger import Ledger
from comity.privacy.loss import GDP, Approx, Pure
from comity.privacy.unit import Neighbours, Unit

RNG = np.random.default_rng(4)
X = RNG.normal(size=(60, 3))
Y = np.where(X[:, 0] + 0.1 * RNG.normal(size=60) > 0, "ash", "birch")
OTHERS = RNG.normal(size=(60, 3))
GRID = {"l2": [0.1, 1.0]}


def estimator(**options: Any) -> AveragedClassifier:
    usual: dict[str, Any] = {"parties": 2, "rounds": 1, "bound": 3.0, "classes": ["ash", "birch"]}
    return AveragedClassifier(**usual | options)


def books(tmp_path: Path, epsilon: float = 50.0, name: str = "x", unit: Any = Unit.RECORD) -> Ledger:
    path = tmp_path / f"{name}.ledger"
    return Ledger.create(path, dataset=name, grant=Approx(epsilon, 1e-6), unit=unit, neighbours=Neighbours.REPLACE)


def after(fits: Any) -> float:
    """What so many fits of epsilon 1 cost: squares of mu add up."""
    square = gaussian_budget(Approx(1, 1e-6)).square * fits
    return float(Spent.zero().add(GDP.squared(square)).epsilon_at(Decimal("1e-6")))


def counts(model: Any, fits: Any) -> Any:
    return model.guarantee_.epsilon == pytest.approx(after(fits), rel=1e-6)


# Without a ledger nothing counts what other processes fit, so nothing is claimed.


def test_a_fit_without_a_ledger_is_a_simulation() -> None:
    made = estimator().fit(X, Y).guarantee_
    assert made.claim.startswith("simulation only: no ledger") and not made.private
    assert made.epsilon == pytest.approx(1.0, abs=1e-3)


def test_a_fit_on_a_ledger_file_is_private_and_one_in_memory_is_not(tmp_path: Path) -> None:
    made = estimator(ledger=books(tmp_path)).fit(X, Y).guarantee_
    assert made.private and made.claim == "private" and counts(estimator(ledger=books(tmp_path, name="y")).fit(X, Y), 1)
    memory = Ledger.in_memory(unit=Unit.RECORD, neighbours=Neighbours.REPLACE, grant=Approx(3, 1e-6))
    made = estimator(ledger=memory).fit(OTHERS, Y).guarantee_
    assert made.claim.startswith("simulation only: its ledger is in memory")


@pytest.mark.parametrize(
    "made",
    [
        SoftLabelClassifier(OTHERS, parties=2, bound=3.0),
        AveragedRegressor(parties=2, rounds=1, bound=3.0, low=-3, high=3),
        estimator(),
    ],
)
def test_every_estimator_counts_its_fits(made: Any) -> None:
    y = X[:, 0] if isinstance(made, AveragedRegressor) else Y
    one = made.fit(X, y).guarantee_.epsilon
    assert clone(made).fit(X, y).guarantee_.epsilon > 1.3 * one
    assert made.guarantee_.epsilon > 1.3 * one and not made.guarantee_.private
    assert made.result_.guarantee == made.guarantee_


# The same records again, in whatever form


@pytest.mark.parametrize(
    "again",
    [
        lambda x: x,
        lambda x: x[::-1],
        lambda x: x[7:30],
        lambda x: x.astype(np.float32),
        lambda x: np.asfortranarray(x),
        lambda x: np.vstack([x[:1], OTHERS[1:]]),
    ],
    ids=["same", "order", "subset", "dtype", "layout", "one row"],
)
def test_fits_that_share_a_row_are_counted_together(again: Any) -> None:
    first = estimator().fit(X, Y)
    rows = again(X)
    second = estimator(l2=0.5).fit(rows, Y[: len(rows)])
    assert counts(second, 2) and counts(first, 2)
    assert "over 2 fits" in second.guarantee_.loss


def test_whole_numbers_and_the_sign_of_zero_are_no_difference() -> None:
    whole = np.round(X)
    estimator().fit(whole.astype(int), Y)
    assert counts(estimator().fit(whole, Y), 2)


def test_fits_are_joined_by_a_later_one_that_shares_rows_with_both() -> None:
    first, second = estimator().fit(X, Y), estimator().fit(OTHERS, Y)
    assert counts(first, 1) and counts(second, 1)
    both = estimator().fit(np.vstack([X[:30], OTHERS[:30]]), Y)
    assert counts(first, 3) and counts(second, 3) and counts(both, 3)


def test_other_records_are_not_counted() -> None:
    estimator().fit(X, Y)
    assert counts(estimator().fit(OTHERS, Y), 1)


def test_copies_count_even_when_a_step_before_them_hides_that_rows_are_the_same() -> None:
    first = estimator()
    first.fit(X, Y)
    assert counts(clone(first).fit(2 * X, Y), 2)
    assert counts(clone(clone(first)).fit(3 * X, Y), 3)


def test_a_fit_that_fails_after_its_charge_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    import comity.estimators.simulated_estimator as module

    first = estimator().fit(X, Y)

    def broken(*arguments: Any, **options: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(module, "run_simulation", broken)
        with pytest.raises(MemoryError):
            estimator().fit(X, Y)
    assert counts(first, 2)


def test_a_fit_that_is_refused_counts_nothing(tmp_path: Path) -> None:
    first = estimator(ledger=books(tmp_path, epsilon=1.2)).fit(X, Y)
    with pytest.raises(BudgetExceeded):
        estimator(ledger=tmp_path / "x.ledger").fit(X, Y)
    assert first.guarantee_.private and counts(first, 1)


def test_a_model_that_was_sent_elsewhere_says_what_it_knew(monkeypatch: pytest.MonkeyPatch) -> None:
    import comity.estimators.simulated_estimator as module
    from comity.estimators.fits import Fits

    made = estimator().fit(X, Y)
    estimator().fit(X, Y)
    sent = pickle.dumps(made)
    monkeypatch.setattr(module, "FITS", Fits())
    assert counts(pickle.loads(sent), 2) and not pickle.loads(sent).guarantee_.private


def test_losses_of_several_kinds_are_stated_at_a_delta_that_covers_them() -> None:
    pure = estimator(delta=0.0).fit(X, Y)
    assert pure.guarantee_.delta == 0 and pure.guarantee_.epsilon == 1
    estimator(delta=0.0).fit(X, Y)
    assert pure.guarantee_.delta == 0 and pure.guarantee_.epsilon == 2
    estimator().fit(X, Y)
    # Fits are chosen as one goes, so that what is left of one kind can't be added to what is left of another.
    square = gaussian_budget(Approx(1, 1e-6)).square + 2 * pure_square(Decimal(1))
    found = Spent.zero().add(GDP.squared(square)).epsilon_at(Decimal("1e-6"))
    assert pure.guarantee_.delta == 1e-6 and pure.guarantee_.epsilon == pytest.approx(float(found), rel=1e-6)
    estimator(delta=1e-5).fit(X, Y)
    assert pure.guarantee_.delta == 1e-5


def test_losses_that_no_currency_takes_together_are_not_added_up() -> None:
    from comity.estimators.fits import Fits

    register = Fits()
    shared: dict[str, Any] = {"delta": Decimal("1e-6"), "ledger": None, "family": None}
    first = register.register(X, losses=Counter({Approx(1, 1e-7): 1}), **shared)
    assert cast(Any, register.tally(first)).spent == Spent.zero().add(Approx(1, 1e-7))
    register.register(X, losses=Counter({GDP(1): 1}), **shared)
    assert cast(Any, register.tally(first)).spent is None
    made = estimator().fit(OTHERS, Y)
    said = widen_guarantee(made.guarantee_, charge=None, search=(), tally=cast(Any, register.tally(first)))
    assert said.epsilon == np.inf and said.loss == "more than can be added up over 2 fits of this process"


def test_losses_with_a_delta_of_their_own_are_stated_at_the_sum() -> None:
    from comity.estimators.fits import Fits

    register = Fits()
    for _ in range(3):
        fit = register.register(
            X, losses=Counter({Approx(1, 1e-6): 1}), delta=Decimal("1e-6"), ledger=None, family=None
        )
    tally: Any = register.tally(fit)
    assert tally.delta == Decimal("3e-6") and tally.spent.epsilon_at(Decimal("3e-6")) == 3


# Searches


def searches(**options: Any) -> dict[Any, Any]:
    return {
        "grid": lambda x, **more: (
            GridSearchCV(estimator(**more), GRID, cv=2, error_score="raise", **options).fit(x, Y).best_estimator_
        ),
        "random": lambda x, **more: (
            RandomizedSearchCV(estimator(**more), GRID, n_iter=2, cv=2, random_state=0, error_score="raise", **options)
            .fit(x, Y)
            .best_estimator_
        ),
        "split": lambda x, **more: (
            GridSearchCV(estimator(**more), {"l2": [0.1, 0.3, 0.6, 1.0]}, cv=ShuffleSplit(1, random_state=0), **options)
            .fit(x, Y)
            .best_estimator_
        ),
    }


@pytest.mark.parametrize("kind", ["grid", "random", "split"])
def test_a_search_counts_every_fit_and_names_the_choice(kind: str) -> None:
    best = searches()[kind](X)
    assert counts(best, 5)
    assert best.guarantee_.claim.startswith("simulation only:") and not best.guarantee_.private
    assert "sklearn.model_selection" in best.guarantee_.claim and "chosen by scores" in best.guarantee_.claim


@pytest.mark.parametrize("kind", ["grid", "random", "split"])
def test_a_search_that_is_paid_for_is_not_private_either(tmp_path: Path, kind: str) -> None:
    best = searches()[kind](X, ledger=books(tmp_path))
    assert counts(best, 5)
    assert best.guarantee_.claim.startswith("simulation only:") and "sklearn.model_selection" in best.guarantee_.claim
    assert "no ledger" not in best.guarantee_.claim


def test_a_search_in_other_processes_claims_nothing(tmp_path: Path) -> None:
    found = searches(n_jobs=2)["grid"]
    free = found(X).guarantee_
    assert not free.private and "no ledger" in free.claim and "sklearn.model_selection" in free.claim
    paid = found(OTHERS, ledger=books(tmp_path))
    # The ledger has seen what this process has not.
    assert counts(paid, 5) and "sklearn.model_selection" in paid.guarantee_.claim


def test_a_search_through_a_pipeline_is_counted() -> None:
    for first in (StandardScaler(), SelectKBest(k=2)):
        line = make_pipeline(first, estimator())
        search = GridSearchCV(line, {"averagedclassifier__l2": [0.1, 1.0]}, cv=2).fit(X, Y)
        assert counts(search.best_estimator_[-1], 5)


def test_models_of_a_cross_validation_claim_nothing(tmp_path: Path) -> None:
    found = cross_validate(estimator(ledger=books(tmp_path)), X, Y, cv=3, return_estimator=True)
    for model in found["estimator"]:
        assert "sklearn.model_selection" in model.guarantee_.claim
    later = estimator(ledger=tmp_path / "x.ledger").fit(X, Y)
    assert counts(later, 4) and "chosen by scores" in later.guarantee_.claim


def test_a_cross_validation_before_a_fit_is_remembered() -> None:
    cross_val_score(estimator(), X, Y, cv=3)
    later = estimator().fit(X, Y)
    assert counts(later, 4) and "chosen by scores" in later.guarantee_.claim


def test_a_search_by_hand_is_recognised(tmp_path: Path) -> None:
    ledger = books(tmp_path)
    models = [estimator(ledger=ledger, l2=l2).fit(X[:40], Y[:40]) for l2 in (0.1, 1.0)]
    assert all(model.guarantee_.private for model in models)
    best = max(models, key=lambda model: model.score(X[40:], Y[40:]))
    # Nobody was charged for rows 40 to 59, and nothing is said of them; what they chose is fitted to them here:
    again = estimator(ledger=ledger, l2=best.l2).fit(X, Y)
    assert "chosen by scores" in again.guarantee_.claim and "chosen by scores" in best.guarantee_.claim


def test_asking_about_fitted_rows_taints_a_choice_among_several_but_not_one_alone(tmp_path: Path) -> None:
    ledger = books(tmp_path)
    first = estimator(ledger=ledger).fit(X, Y)
    first.predict(X[:3])
    assert first.guarantee_.private
    second = estimator(ledger=ledger).fit(X, Y)
    assert "chosen by scores" in first.guarantee_.claim and "chosen by scores" in second.guarantee_.claim


def test_a_choice_by_public_rows_costs_its_fits_and_no_more(tmp_path: Path) -> None:
    ledger = books(tmp_path)
    models = [estimator(ledger=ledger, l2=l2).fit(X, Y) for l2 in (0.1, 1.0)]
    truth = np.where(OTHERS[:, 0] > 0, "ash", "birch")
    best = max(models, key=lambda model: model.score(OTHERS, truth))
    assert best.guarantee_.private and counts(models[-1], 2)


def test_more_questions_than_are_remembered_are_admitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import comity.estimators.fits as module

    monkeypatch.setattr(module, "_MAX_REMEMBERED_ROWS", 20)
    ledger = books(tmp_path)
    first = estimator(ledger=ledger).fit(OTHERS, Y)
    first.predict(X[:50])
    models = [estimator(ledger=ledger).fit(X[40:], Y[40:]) for _ in range(2)]
    assert "may have been chosen by scores" in models[0].guarantee_.claim


# Fits that the ledger has not seen


def test_fits_outside_the_ledger_are_named(tmp_path: Path) -> None:
    estimator().fit(X, Y)
    made = estimator(ledger=books(tmp_path)).fit(X, Y)
    assert made.guarantee_.claim == (
        "simulation only: 1 other fit of these records in this process was not charged to its ledger"
    )
    estimator(ledger=books(tmp_path, name="z")).fit(X, Y)
    assert "2 other fits of these records in this process were not charged to its ledger" in made.guarantee_.claim


def test_the_same_ledger_by_path_or_opened_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = estimator(ledger=books(tmp_path)).fit(X, Y)
    estimator(ledger=tmp_path / "x.ledger").fit(X, Y)
    monkeypatch.chdir(tmp_path)
    estimator(ledger="x.ledger").fit(X, Y)
    assert first.guarantee_.private


def test_copies_with_ledgers_of_their_own_stand_apart(tmp_path: Path) -> None:
    base = estimator()
    made = [
        clone(base).set_params(ledger=books(tmp_path, name=name)).fit(rows, Y)
        for name, rows in (("x", X), ("z", OTHERS))
    ]
    assert all(model.guarantee_.private and counts(model, 1) for model in made)


def test_a_guarantee_on_a_ledger_is_in_the_ledgers_unit_and_holds_all_that_was_spent(tmp_path: Path) -> None:
    ledger = Ledger.create(
        tmp_path / "pure", dataset="x", grant=Pure(5), unit=Unit.RECORD, neighbours=Neighbours.REPLACE
    )
    SoftLabelClassifier(OTHERS, parties=2, bound=3.0, ledger=ledger).fit(X, Y)
    second = SoftLabelClassifier(OTHERS, parties=2, bound=3.0, ledger=ledger).fit(X, Y)
    assert second.guarantee_.unit == "a record" and second.guarantee_.epsilon == 2
    assert second.guarantee_.delta == 0 and "on its ledger" in second.guarantee_.loss
    granted = estimator(ledger=books(tmp_path)).fit(OTHERS, Y).guarantee_
    assert granted.delta == 1e-6 and granted.neighbours == "replaced"


def test_a_refusal_in_another_process_arrives_as_one() -> None:
    refusal = BudgetExceeded("no", requested="eps 2", remaining="eps 1", difference="eps 1", key="k")
    refusal.party = "ash"
    found = pickle.loads(pickle.dumps(refusal))
    assert type(found) is BudgetExceeded and str(found) == "no" and vars(found) == vars(refusal)


# Rows that were prepared by what was learned from records


@pytest.mark.parametrize("step", [StandardScaler(), SelectKBest(k=2)], ids=["scaler", "selection"])
def test_a_fitted_step_before_it_is_named(tmp_path: Path, step: Any) -> None:
    made = make_pipeline(step, estimator(ledger=books(tmp_path))).fit(X, Y)[-1].guarantee_
    assert not made.private and f"{type(step).__name__} before it was fitted on records" in made.claim


def test_steps_that_learn_nothing_here_leave_the_claim(tmp_path: Path) -> None:
    public = FrozenEstimator(StandardScaler().fit(OTHERS))
    for number, step in enumerate((FunctionTransformer(lambda x: x / 2), public, "passthrough")):
        line = make_pipeline(step, estimator(ledger=books(tmp_path, name=f"l{number}")))
        with_own_rows = X + number
        assert line.fit(with_own_rows, Y)[-1].guarantee_.private


def test_rows_scaled_by_their_own_mean_are_recognised(tmp_path: Path) -> None:
    scaled = StandardScaler().fit_transform(X)
    made = estimator(ledger=books(tmp_path)).fit(scaled, Y).guarantee_
    assert "mean 0 and variance 1" in made.claim and not made.private
    public = StandardScaler().fit(OTHERS).transform(X)
    assert estimator(ledger=books(tmp_path, name="z")).fit(public, Y).guarantee_.private


def test_a_published_method_keeps_its_own_warning(tmp_path: Path) -> None:
    made = SoftLabelClassifier(OTHERS, parties=2, bound=3.0, method="vote").fit(X, Y).guarantee_
    assert "simulation only" in made.claim


def test_reports_say_what_the_guarantee_says(tmp_path: Path) -> None:
    best = searches()["grid"](X)
    saved = best.result_.save(tmp_path / "run")
    page = (saved / "report.html").read_text("utf-8")
    assert "Simulation only" in page and "Not private as claimed" not in page
    assert '"private": false' in (saved / "result.json").read_text("utf-8")


def _fitted_by_a_child(rows: Any) -> Any:
    made = estimator().fit(rows, Y)
    return pickle.dumps(made), made.guarantee_.epsilon


def test_a_forked_process_goes_on_counting_and_its_models_keep_their_figures() -> None:
    import multiprocessing

    import comity.estimators.simulated_estimator as module
    from comity.estimators.fits import FITS

    cast(Any, module).FITS = FITS  # the register that forks; the fixture puts its own back
    rows = np.random.default_rng(8).normal(size=X.shape)
    before = estimator().fit(rows, Y)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        sent, epsilon = pool.apply(_fitted_by_a_child, (rows,))
    assert epsilon == pytest.approx(after(2), rel=1e-6)
    # The parent's own next place has the number of the child's.
    estimator().fit(OTHERS + 5, Y)
    assert counts(pickle.loads(sent), 2) and counts(before, 1)
