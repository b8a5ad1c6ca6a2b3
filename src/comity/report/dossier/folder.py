"""The dossier as a folder: Markdown and JSON of each document, one HTML page of all, and the registry's YAML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from comity._version import __version__
from comity.files import make_folder, write_atomically
from comity.report.dossier.documents import make_documents
from comity.report.dossier.registry import check_record, make_record, write_yaml
from comity.report.dossier.subject import Subject
from comity.report.page import render


def dossier_values(subject: Subject) -> dict[str, Any]:
    """What the template of the page shows."""
    return {
        "study": subject.plan.study,
        "documents": make_documents(subject),
        "registry": write_yaml(make_record(subject)),
        "hash": subject.hash,
        "version": __version__,
    }


def write_dossier(subject: Subject, folder: Path) -> dict[str, Any]:
    """Write all documents into `folder`, which is made if it is not there. Returns what was written, with the fields
    that are left to fill in."""
    documents, record = make_documents(subject), make_record(subject)
    to_fill = check_record(record)
    make_folder(folder)
    for one in documents:
        write_atomically(folder / f"{one.key}.md", one.as_markdown())
    write_atomically(folder / "registry.yaml", write_yaml(record))
    write_atomically(folder / "dossier.html", render("dossier.html.jinja", **dossier_values(subject)))
    content = {
        "study": subject.plan.study,
        "study_hash": subject.hash,
        "run": None if subject.result is None else subject.result.run,
        "documents": [one.as_json() for one in documents],
        "registry": record,
        "registry_to_fill_in": to_fill,
    }
    write_atomically(folder / "dossier.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return {
        "folder": str(folder),
        "files": [*(f"{one.key}.md" for one in documents), "registry.yaml", "dossier.html", "dossier.json"],
        "to_fill_in": sum(len(one.blanks) for one in documents) + len(to_fill),
        "caveats": list(subject.caveats),
    }
