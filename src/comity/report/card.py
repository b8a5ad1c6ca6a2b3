"""The model card: what the model is, what its release cost, against whom that holds, and what is not known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.data import Encoding
from comity.learn import LinearClassifier, LinearRegressor
from comity.report.quality import not_covered

if TYPE_CHECKING:
    from comity.report.result import Result


def model_card(result: Result) -> str:
    guarantee = result.guarantee
    parts = [
        f"# {result.study}: released model",
        what_it_is(result),
        f"Made on {result.made} by run `{result.run}` of study `{result.study}` ({result.plan.protocol}), hash "
        f"`{result.study_hash}`.",
        "## Guarantee",
        "\n".join(
            [
                *(f"- Loss of {payer}: {loss}" for payer, loss in guarantee.losses.items()),
                f"- Unit: {guarantee.unit}, {guarantee.neighbours}",
                f"- Holds against: {guarantee.adversary}",
                f"- Claim: {'none: simulated with a seed' if guarantee.seeded else guarantee.claim}",
                f"- Noise: {_noise(result)}",
            ]
        ),
        "## How good it is",
        _quality(result),
        "## Input",
        _input(result),
        "## Intended use and limits",
        "The study file records no intended use; the parties that made the model decide on it. The guarantee is about "
        "what the model tells of its sources, not about what it says of the people it is applied to. It was learned "
        "under the bounds and categories of its schema: values outside are clipped or mapped to `other`. Groups of "
        "people were not compared. Each further release from the same records adds to the loss above.",
        "## Files",
        "`model.json` (kind, classes, encoding with its schema) and `weights.npz`; no code is run by opening them. "
        "Use: `comity predict MODEL DATA`, or `comity.load_model(folder)` in Python. Beside this folder `released/` "
        "holds every value that was paid for, by its declared name; `comity.load_result(folder of the run).released` "
        "reads them.",
    ]
    return "\n\n".join(parts) + "\n"


def what_it_is(result: Result) -> str:
    """One sentence; the page and the card both begin with it."""
    model, parties = result.model, f"{result.parties:,} {'party' if result.parties == 1 else 'parties'}"
    if not isinstance(model, LinearClassifier):
        kind = "linear regression" if isinstance(model, LinearRegressor) else type(model).__name__
        return f"A released {kind} from the records of {parties}."
    classes = [str(label) for label in model.classes]
    shown = ", ".join(classes[:6]) + (f" and {len(classes) - 6} more" if len(classes) > 6 else "")
    target, columns = "classes", f"{model.n_features_in_} features"
    if isinstance(model.encoding, Encoding):
        if model.encoding.schema.target is not None:
            target = model.encoding.schema.target.name
        columns = f"{len(model.encoding.schema.columns)} columns ({columns} after encoding)"
    return f"A linear classifier of {target} ({shown}) from {columns}, learned from the records of {parties}."


def _noise(result: Result) -> str:
    if result.guarantee.seeded:
        return f"from seed {result.seed}, so whoever knows it can take the noise off. Not a private release"
    spread = "" if result.model_noise is None else f", standard deviation {result.model_noise:.4g} in each number"
    return f"drawn by OpenDP without a seed{spread}"


def _quality(result: Result) -> str:
    if result.error is None:
        return "Not measured. A score on private records is itself a release, and none was paid for."
    lines = [f"Error {result.error:.3f} on test records of the simulation. For comparison:"]
    lines += [f"- {baseline.name}: {baseline.error:.3f} ({baseline.note})" for baseline in result.baselines]
    lines = lines if result.baselines else [lines[0].replace(" For comparison:", "")]
    return "\n".join([*lines, "", not_covered(result) or ""])


def _input(result: Result) -> str:
    encoding = getattr(result.model, "encoding", None)
    if not isinstance(encoding, Encoding):
        return "Encoded rows of norm at most 1, in the order in which the parties encoded theirs."
    columns = ", ".join(f"`{column.name}`" for column in encoding.schema.columns)
    return f"A table with the columns {columns}, as `model.json` describes them (bounds, categories, missing values)."
