"""`python -m tools.wheelhouse FOLDER`: wheels of Comity and of everything that a deployment installs, for machines
without a network.

    FOLDER/*.whl                     for this platform and this version of Python
    FOLDER/requirements-EXTRA.txt    every package that `comity[EXTRA]` needs, with its version and hash; `core` for
                                     `comity` alone, `all` for all extras of a deployment
    FOLDER/bom.json                  the software bill of materials: CycloneDX 1.6

Promise    `pip install --no-index --find-links FOLDER --require-hashes -r FOLDER/requirements-EXTRA.txt` installs these
           files and no others, or fails.
Against    Someone who changes a wheel after it was listed. Not against one who changes the lists too: compare their
           hashes over another channel. Versions are those of `constraints.txt`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tomllib
import uuid
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOT_DEPLOYED = frozenset({"bench", "deploy-try", "dev", "docs", "plots", "spark-try"})
"""Extras for development and for trying; all others are deployed."""
_OWN = "comity"
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


@dataclass(frozen=True)
class Wheel:
    """A wheel, as its metadata say."""

    file: str
    name: str
    version: str
    sha256: str
    licence: str
    summary: str
    requires: tuple[str, ...]
    """Names of packages that it needs without an extra, whatever their markers."""

    @classmethod
    def read(cls, path: Path) -> Wheel:
        with zipfile.ZipFile(path) as archive:
            place = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
            headers = HeaderParser().parsestr(archive.read(place).decode("utf-8"))
        classified = [one.rpartition(" :: ")[2] for one in headers.get_all("Classifier", []) if "License ::" in one]
        stated = headers.get("License-Expression") or ", ".join(classified) or headers.get("License") or ""
        required = [one for one in headers.get_all("Requires-Dist", []) if "extra ==" not in one]
        return cls(
            file=path.name,
            name=normalise(headers["Name"]),
            version=headers["Version"],
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            licence=stated.strip().partition("\n")[0][:200],
            summary=headers.get("Summary") or "",
            requires=tuple(sorted({normalise(found[1]) for one in required if (found := _NAME.match(one))})),
        )

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def deployed_extras(project: Mapping[str, Any]) -> list[str]:
    """The extras of a project that a deployment may need."""
    return sorted(set(project["project"]["optional-dependencies"]) - NOT_DEPLOYED)


def requirements_text(wheels: Iterable[Wheel], extras: Sequence[str] = ()) -> str:
    """Pinned versions with hashes, for `pip install --require-hashes`."""
    lines = []
    for wheel in sorted(wheels, key=lambda one: one.name):
        asked = f"[{','.join(extras)}]" if wheel.name == _OWN and extras else ""
        lines.append(f"{wheel.name}{asked}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    return "".join(lines)


def bill_of_materials(wheels: Sequence[Wheel], extras: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The wheels as a CycloneDX 1.6 document, the same for the same files. `extras` are the packages of each extra."""
    ordered = sorted(wheels, key=lambda one: one.name)
    own = next(one for one in ordered if one.name == _OWN)
    known = {one.name: one.purl for one in ordered}
    digest = hashlib.sha256("".join(one.sha256 for one in ordered).encode()).hexdigest()

    def needed(wheel: Wheel) -> list[str]:
        names = {*wheel.requires, *(name for listed in extras.values() if wheel.name == _OWN for name in listed)}
        return sorted(known[name] for name in names if name in known and name != wheel.name)

    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {"component": _component(own)},
        "components": [_component(one) for one in ordered if one is not own],
        "dependencies": [{"ref": one.purl, "dependsOn": needed(one)} for one in ordered],
    }


def _component(wheel: Wheel) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "application" if wheel.name == _OWN else "library",
        "bom-ref": wheel.purl,
        "name": wheel.name,
        "version": wheel.version,
        "purl": wheel.purl,
        "hashes": [{"alg": "SHA-256", "content": wheel.sha256}],
        "properties": [{"name": "comity:wheel", "value": wheel.file}],
    }
    if wheel.summary:
        component["description"] = wheel.summary
    if wheel.licence:
        component["licenses"] = [{"license": {"name": wheel.licence}}]
    return component


def direct_names(project: Mapping[str, Any], extra: str) -> list[str]:
    """The packages that an extra names, those of extras that it contains included."""
    found: list[str] = []
    for text in project["project"]["optional-dependencies"][extra]:
        inner = re.match(rf"{_OWN}\[([^\]]*)\]", text)
        if inner:
            for one in inner[1].split(","):
                found += direct_names(project, one.strip())
        elif name := _NAME.match(text):
            found.append(normalise(name[1]))
    return sorted(set(found))


def build(folder: Path, download: Sequence[str]) -> None:
    """Fill a new folder. This is the step that uses the network; `download` are further options of `pip download`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = deployed_extras(project)
    folder.mkdir(parents=True)
    _pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (own,) = folder.glob("*.whl")
    bound = ["--constraint", str(ROOT / "constraints.txt"), "--only-binary", ":all:", *download]
    _pip("download", "--dest", str(folder), *bound, f"{own}[{','.join(extras)}]")
    wheels = {wheel.name: wheel for wheel in map(Wheel.read, sorted(folder.glob("*.whl")))}
    for name, asked in {"core": [], "all": extras, **{extra: [extra] for extra in extras}}.items():
        chosen = [wheels[one] for one in _resolve(folder, own, asked, download)]
        (folder / f"requirements-{name}.txt").write_text(requirements_text(chosen, asked), encoding="utf-8")
    bill = bill_of_materials(list(wheels.values()), {extra: direct_names(project, extra) for extra in extras})
    (folder / "bom.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    size = sum(path.stat().st_size for path in folder.glob("*.whl"))
    print(f"{folder}: {len(wheels)} wheels, {size / 1e6:.0f} MB; extras: {', '.join(extras)}")


def _resolve(folder: Path, own: Path, extras: Sequence[str], download: Sequence[str]) -> list[str]:
    """The packages that pip would install from the folder alone."""
    wanted = f"{own}[{','.join(extras)}]" if extras else str(own)
    # A foreign platform can be resolved only for another folder than this environment's.
    foreign = [*download, "--only-binary", ":all:", "--target", str(folder / "unused")] if download else []
    words = ["--dry-run", "--ignore-installed", "--quiet", "--report", "-", "--no-index", "--find-links", str(folder)]
    report = json.loads(_pip("install", *words, *foreign, wanted))
    return [normalise(one["metadata"]["name"]) for one in report["install"]]


def _pip(*words: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"pip {words[0]} failed; see its messages above")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools.wheelhouse", description="Collect wheels for machines offline.")
    parser.add_argument("folder", type=Path, help="a new folder")
    parser.add_argument("download", nargs="*", help="options of pip download, after --: -- --python-version 3.12")
    given = parser.parse_args()
    if given.folder.exists():
        raise SystemExit(f"{given.folder} exists; remove it, or name another folder")
    build(given.folder, given.download)


if __name__ == "__main__":
    main()
