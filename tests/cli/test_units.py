"""The unit files that are shipped: systemd takes them, and their commands are commands of this version."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from comity.cli import main
from comity.cli.app import app

UsageError: Any = typer.BadParameter.__base__
NAMES = ("comity-relay.service", "comity-site.service", "comity-submit@.service")


@pytest.fixture
def units(tmp_path: Path) -> Path:
    assert main(["consortium", "units", str(tmp_path / "units")]) == 0
    assert main(["consortium", "units", str(tmp_path / "units")]) == 3, "what somebody has changed is not overwritten"
    return tmp_path / "units"


def lines(unit: Path) -> list[tuple[str, str, str]]:
    """Section, key and value of each line."""
    section, found = "", []
    for line in unit.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert section and equals and key == key.strip(), line
            found.append((section, key, value))
    return found


def check_words(words: list[str]) -> None:
    """Parse as the command line does, and run nothing."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        assert words[0] in command.commands, words
        command, words = command.commands[words[0]], words[1:]
    command.make_context("comity", list(words))


def test_their_commands_are_commands_of_this_version(units: Path) -> None:
    assert sorted(path.name for path in units.iterdir()) == sorted([*NAMES, "compose.yaml", "Containerfile"])
    for name in NAMES:
        started = [value for _, key, value in lines(units / name) if key.startswith("Exec")]
        assert started
        for line in started:
            program, *words = shlex.split(line)
            assert program.lstrip("-") == "/opt/comity/bin/comity"
            check_words(words)
    with pytest.raises(UsageError):
        check_words(["site", "serve", "--nothing-of-the-kind"])


def test_a_site_listens_nowhere_and_keeps_what_it_remembers_apart_from_what_is_restored(units: Path) -> None:
    for name in NAMES[1:]:
        told = {(section, key): value for section, key, value in lines(units / name)}
        home = told["Service", "Environment"].removeprefix("COMITY_HOME=")
        assert not home.startswith(told["Service", "WorkingDirectory"])
        assert told["Service", "CapabilityBoundingSet"] == "" and told["Service", "UMask"] == "0077"
    site = (units / "compose.yaml").read_text().partition("  site:")[2]
    assert "ports:" not in site


def test_only_a_run_that_was_stopped_goes_on_by_itself(units: Path) -> None:
    told = {key: value for _, key, value in lines(units / NAMES[2])}
    assert told["Restart"] == "on-failure" and set(told["RestartPreventExitStatus"].split()) == {"1", "2", "3", "4"}
    assert "--resume %i" in told["ExecStart"]


def test_containers_are_confined_and_run_commands_of_this_version(units: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="no extra has PyYAML, which reads the file back: pip install pyyaml")
    services = yaml.safe_load((units / "compose.yaml").read_text())["services"]
    recipe = (units / "Containerfile").read_text()
    owner: Any = typer.main.get_command(app)
    assert set(services) == {"relay", "site", "console"}
    for name, service in services.items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["user"] == "10001:10001"
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert f" AS {service['image'].partition(':')[2]}\n" in recipe
        if name != "console" or "console" in owner.commands["site"].commands:
            check_words(service["command"])
    assert "network_mode" not in services["site"] and "ports" not in services["console"]
    assert "USER 10001:10001" in recipe and "--require-hashes" in recipe and "--no-index" in recipe
    for line in recipe.splitlines():
        assert not line.startswith(("ADD http", "RUN curl", "RUN wget", "RUN apt")), line


def test_the_compose_file_says_what_was_tried(units: Path) -> None:
    assert "No\n# container engine has run this file." in (units / "compose.yaml").read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("name", NAMES)
def test_systemd_takes_them(units: Path, name: str) -> None:
    unit = units / name
    unit.write_text(unit.read_text().replace("/opt/comity/bin/comity", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    told = [line for line in (done.stdout + done.stderr).splitlines() if name.partition(".")[0].rstrip("@") in line]
    assert told == []
    unit.write_text(unit.read_text().replace("Restart=on-failure", "Restart=perhaps"))
    again = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "perhaps" in again.stdout + again.stderr
