"""The offline folder of wheels: pip installs what was listed and nothing that was changed, and the bill is complete."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tools.wheelhouse import (
    NOT_DEPLOYED,
    ROOT,
    Wheel,
    bill_of_materials,
    deployed_extras,
    direct_names,
    requirements_text,
)


def write_wheel(folder: Path, name: str, requires: tuple[str, ...] = (), extras: tuple[str, ...] = ()) -> Path:
    file = name.replace("-", "_")
    path = folder / f"{file}-1.0-py3-none-any.whl"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", "License-Expression: MIT", "Summary: a test"]
    lines += [f"Provides-Extra: {one}" for one in extras] + [f"Requires-Dist: {one}" for one in requires]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{file}/__init__.py", "")
        archive.writestr(f"{file}-1.0.dist-info/METADATA", "\n".join(lines) + "\n\n")
        archive.writestr(
            f"{file}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{file}-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def house(tmp_path: Path) -> Path:
    write_wheel(tmp_path, "comity", ("zz-numbers>=1", 'zz_bus; extra == "deploy"'), ("deploy",))
    write_wheel(tmp_path, "zz-numbers")
    write_wheel(tmp_path, "zz-bus", ('zz.numbers; python_version > "3"',))
    wheels = [Wheel.read(path) for path in sorted(tmp_path.glob("*.whl"))]
    (tmp_path / "requirements-deploy.txt").write_text(requirements_text(wheels, ["deploy"]))
    return tmp_path


def install(house: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "install", "--no-index"]
    listed = ["--find-links", str(house), "--require-hashes", "-r", str(house / "requirements-deploy.txt")]
    target = ["--dry-run", "--ignore-installed", "--no-cache-dir"]
    return subprocess.run([*command, *target, *listed, *words], capture_output=True, text=True, timeout=60)


def test_pip_takes_what_is_listed_and_refuses_a_wheel_that_was_changed(house: Path) -> None:
    done = install(house)
    assert done.returncode == 0, done.stderr
    for name in ("comity", "zz-numbers", "zz-bus"):
        assert re.search(rf"Would install.*{name}-1.0", done.stdout)
    write_wheel(house, "zz-bus", ("zz-numbers", "another"))
    refused = install(house)
    assert refused.returncode != 0 and "DO NOT MATCH THE HASHES" in refused.stderr


def test_every_line_has_a_version_and_a_hash(house: Path) -> None:
    text = (house / "requirements-deploy.txt").read_text()
    assert len(text.splitlines()) == 3
    for line in text.splitlines():
        assert re.fullmatch(r"[a-z-]+(\[deploy\])?==1\.0 --hash=sha256:[0-9a-f]{64}", line)
    assert "comity[deploy]==1.0" in text


def test_the_bill_of_materials_names_every_wheel_with_its_hash_licence_and_needs(house: Path) -> None:
    """The fields that CycloneDX 1.6 requires; references lead to components, and are unique."""
    wheels = [Wheel.read(path) for path in sorted(house.glob("*.whl"))]
    bill = bill_of_materials(wheels, {"deploy": ["zz-bus"]})
    assert bill == bill_of_materials(wheels[::-1], {"deploy": ["zz-bus"]})
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    components: list[dict[str, Any]] = [bill["metadata"]["component"], *bill["components"]]
    hashes = {one.name: one.sha256 for one in wheels}
    for one in components:
        assert one["type"] in ("application", "library") and one["version"] == "1.0"
        assert one["purl"] == one["bom-ref"] == f"pkg:pypi/{one['name']}@1.0"
        assert one["hashes"] == [{"alg": "SHA-256", "content": hashes[one["name"]]}]
        assert one["licenses"] == [{"license": {"name": "MIT"}}]
    references = [one["bom-ref"] for one in components]
    assert len(set(references)) == len(references) == 3
    needs = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert set(needs) == set(references)
    assert needs["pkg:pypi/comity@1.0"] == ["pkg:pypi/zz-bus@1.0", "pkg:pypi/zz-numbers@1.0"]
    assert needs["pkg:pypi/zz-bus@1.0"] == ["pkg:pypi/zz-numbers@1.0"] and needs["pkg:pypi/zz-numbers@1.0"] == []


def test_all_extras_are_deployed_but_those_for_development_and_trying() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    known = set(project["project"]["optional-dependencies"])
    assert known >= NOT_DEPLOYED and set(deployed_extras(project)) == known - NOT_DEPLOYED
    assert {"compiler", "deploy", "sql"} <= set(deployed_extras(project))
    assert direct_names(project, "deploy-websocket") == ["aiohttp", "nats-py"]


def test_what_is_installed_without_an_extra_is_neither_a_compiler_nor_for_plots_nor_a_database() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = {re.split(r"[<>=!\[; ]", one)[0] for one in project["project"]["dependencies"]}
    assert not names & {"numba", "matplotlib", "duckdb", "sqlalchemy", "nats-py", "aiohttp", "sphinx"}
