"""A record for the OpenDP registry of deployments: its published fields, filled from a plan or a run.

`FIELDS` lists the names, types and values that the registry's schema has (deployments-schema.yaml, with `dp_variant`,
`deployment_model` and `administrative`). The registry changes; a record is checked against this list, and what is left
to fill in is named in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from comity.report.dossier.subject import Subject, describe_exact
from comity.report.overview import describe_loss, largest_epsilon

TEXT, INTEGER, NUMBER, TEXTS = "text", "integer", "number", "texts"
FIELDS: Final[Mapping[str, Any]] = {
    "url_slug": TEXT,
    "deployment": {
        "basic": {
            "name": TEXT,
            "data_curators": [
                {"data_curator_name": TEXT, "data_curator_type": ("Government", "Industry", "Nonprofit")}
            ],
            "description": TEXT,
            "intended_use": TEXT,
            "data_product_type": (
                *("Summary statistics", "Machine learning model", "Dataset"),
                *("Synthetic data", "Interactive API", "SQL queries"),
            ),
            "data_product_region": TEXT,
            "data_product_sector": ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance"),
            "publication_date": TEXT,
        },
        "dp_variant": {
            "variant_name": ("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
            "data_domain": TEXT,
            "unprotected_quantities": TEXT,
        },
        "privacy_loss": {
            "privacy_unit": TEXT,
            "privacy_unit_details": TEXT,
            "number_of_privacy_units": INTEGER,
            "privacy_parameters": {"epsilon": NUMBER, "delta": NUMBER, "rho": NUMBER},
            "privacy_parameters_details": TEXT,
        },
        "deployment_model": {
            "model_name": ("Local", "Central", "Shuffle", "Federated", "Varies"),
            "model_name_details": TEXT,
            "trust_assumptions": TEXT,
            "actors": TEXT,
            "release_type": ("One release", "Many releases"),
            "release_type_details": TEXT,
            "data_source_type": ("Static", "Dynamic"),
            "data_source_type_details": TEXT,
            "access_type": ("Interactive", "Non-interactive"),
            "access_type_details": TEXT,
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": TEXT,
            "mechanisms": TEXT,
            "composition": TEXT,
            "post_processing": TEXT,
            "justification": TEXT,
            "utility": TEXT,
            "additional_information": TEXT,
        },
        "administrative": {
            "status": (
                *("Converted", "Draft", "Pending", "Changes Required", "Approved"),
                *("Approved (Update Requested)", "Approved (Pending)"),
            ),
            "registry_authors": TEXTS,
            "tier": INTEGER,
        },
    },
}
REQUIRED: Final = (
    "url_slug",
    *(f"deployment.basic.{key}" for key in ("name", "data_curators", "description", "intended_use")),
    *(f"deployment.basic.{key}" for key in ("data_product_type", "data_product_region", "publication_date")),
    *(f"deployment.administrative.{key}" for key in ("status", "registry_authors", "tier")),
)


def make_record(subject: Subject) -> dict[str, Any]:
    """The record, with empty texts where only the organisation knows the answer."""
    plan, overview, answers = subject.plan, subject.answers.overview, subject.answers
    result, epsilon = subject.result, largest_epsilon(subject.plan)
    exact = describe_exact(subject.exact)
    derived = [f"{row.release}, {row.protection}" for row in plan.rows if row.kind == "derived"]
    parameters: dict[str, float] = {"epsilon": float(epsilon)} if epsilon.is_finite() else {}
    parameters |= {"delta": subject.delta} if subject.delta else {}
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", plan.study.lower()).strip("-") or "study",
        "deployment": {
            "basic": {
                "name": plan.study,
                "data_curators": [{"data_curator_name": "", "data_curator_type": ""}],
                "description": f"{overview.title}.",
                "intended_use": plan.about.purpose,
                "data_product_type": _product_type(subject),
                "data_product_region": "",
                "data_product_sector": "",
                "publication_date": "" if result is None or not result.guarantee.private else result.made[:10],
            },
            "dp_variant": {
                "variant_name": _variant(subject),
                "data_domain": "Tables of the columns in the study's public schema: " + "; ".join(overview.reads),
                "unprotected_quantities": f"{exact}."
                if exact
                else "None beside the numbers that the study declares: parties, records, columns and bounds.",
            },
            "privacy_loss": {
                "privacy_unit": plan.unit,
                "privacy_unit_details": f"Neighbouring data have one unit {plan.neighbours}.",
                "privacy_parameters": parameters,
                "privacy_parameters_details": f"{describe_loss(plan)}; in all {plan.in_all}.",
            },
            "deployment_model": {
                "model_name": "Federated",
                "model_name_details": "Records stay with their owners. "
                + " ".join(f"{one}." for one in overview.leaves),
                "trust_assumptions": ". ".join(overview.trusts) + ".",
                "actors": " ".join(f"{who}: {what}" for who, what in answers.trust),
                "release_type": "One release",
                "release_type_details": "Each run is one release and is charged to each owner's ledger.",
                "data_source_type": "Static",
                "data_source_type_details": "A run reads the records that an owner has when it begins.",
                "access_type": "Non-interactive",
                "access_type_details": "",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": "Bounds and categories come from a public schema. Settings "
                "are fixed in the study before records are read.",
                "mechanisms": "; ".join(
                    f"{row.release}: {row.protection}, loss {row.cost}" for row in plan.rows if row.loss != "-"
                )
                + ". Noise is drawn on integers from the operating system's entropy.",
                "composition": f"Adaptive, within a run and across runs, by each owner's ledger: {plan.in_all}.",
                "post_processing": "; ".join(derived) + "." if derived else "None.",
                "justification": "",
                "utility": "",
                "additional_information": " ".join(subject.caveats) + f" Study hash {subject.hash}.",
            },
            "administrative": {"status": "Draft", "registry_authors": [""], "tier": 3},
        },
    }


def _product_type(subject: Subject) -> str:
    made = subject.plan.makes
    if "dataset" in made:
        return "Synthetic data"
    return "Dataset" if "records" in made else "Machine learning model"


def _variant(subject: Subject) -> str:
    if not subject.keeps_promise:
        return "Custom"
    return "Approximate DP" if subject.delta else "Pure DP"


def check_record(record: Mapping[str, Any]) -> list[str]:
    """What keeps the record from being valid in the registry: unknown fields, wrong values, and what is to fill in."""
    found = _check(record, FIELDS, "")
    present = {path for path, value in _leaves(record, "") if value not in ("", [""], None)}
    missing = [key for key in REQUIRED if not any(path == key or path.startswith(f"{key}.") for path in present)]
    return found + [f"{key}: to fill in" for key in missing]


def _leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [leaf for key, one in value.items() for leaf in _leaves(one, f"{path}.{key}" if path else str(key))]
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return [leaf for one in value for leaf in _leaves(one, path)]
    return [(path, value)]


def _check(value: Any, expected: Any, path: str) -> list[str]:
    if isinstance(expected, Mapping):
        if not isinstance(value, Mapping):
            return [f"{path}: a table is expected"]
        unknown = [f"{path}.{key}: unknown to the registry".lstrip(".") for key in value if key not in expected]
        below = [
            one
            for key, inner in value.items()
            if key in expected
            for one in _check(inner, expected[key], f"{path}.{key}" if path else str(key))
        ]
        return unknown + below
    if isinstance(expected, list):
        if not isinstance(value, list) or not value:
            return [f"{path}: a list is expected"]
        return [one for entry in value for one in _check(entry, expected[0], path)]
    if isinstance(expected, tuple):
        return [] if value == "" or value in expected else [f"{path}: {value!r} is none of {', '.join(expected)}"]
    fits = {
        TEXT: isinstance(value, str),
        INTEGER: isinstance(value, int) and not isinstance(value, bool),
        NUMBER: isinstance(value, int | float) and not isinstance(value, bool),
        TEXTS: isinstance(value, list) and all(isinstance(one, str) for one in value),
    }[expected]
    return [] if fits else [f"{path}: {expected} is expected, found {value!r}"]


def write_yaml(record: Mapping[str, Any]) -> str:
    """The record as YAML. Texts are quoted as JSON quotes them, which YAML reads alike."""
    lines = ["# A draft for the OpenDP registry of deployments, written by Comity."]
    lines += [f"# {one}" for one in check_record(record)]
    return "\n".join([*lines, *_yaml(record, 0)]) + "\n"


def _yaml(value: Mapping[str, Any], depth: int) -> list[str]:
    lines = []
    for key, one in value.items():
        start = f"{'  ' * depth}{key}:"
        if isinstance(one, Mapping):
            lines += [start, *_yaml(one, depth + 1)] if one else [f"{start} {{}}"]
        elif isinstance(one, list) and one and isinstance(one[0], Mapping):
            lines.append(start)
            for entry in one:
                first, *rest = _yaml(entry, depth + 2)
                lines += [f"{'  ' * (depth + 1)}- {first.strip()}", *rest]
        else:
            lines.append(f"{start} {_scalar(one)}")
    return lines


def _scalar(value: Any) -> str:
    text = json.dumps(value)
    # YAML 1.1 reads 1e-06 as a text, and 1.0e-06 as a number.
    return text.replace("e", ".0e", 1) if isinstance(value, float) and "e" in text and "." not in text else text
