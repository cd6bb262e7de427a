"""The command: verbs, exit codes, and no traceback unless asked for."""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from tiered.cli import main as cli
from tiered.cli import verbs
from tiered.cli.spark import REGISTERED
from tiered.errors import Conflict, Corrupt, Fenced, Invalid, NotFound, Refused, TieredError, Unavailable
from tiered.version import __version__

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command in this process, with no ``TIERED_…`` in the environment."""
    for name in [name for name in os.environ if name.startswith("TIERED_")]:
        monkeypatch.delenv(name)

    def call(*args: object) -> tuple[int, str, str]:
        code = cli.main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def verb(monkeypatch: pytest.MonkeyPatch, command: Callable[..., object]) -> None:
    """Put ``command`` in the place of the verb ``doctor``."""
    module = types.ModuleType("tiered.cli.doctor")
    module.__spec__ = types.SimpleNamespace(name="tiered.cli.doctor")  # type: ignore[assignment]
    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiered.cli.doctor", module)


def test_help_names_every_exit_code(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    text = " ".join(out.split())
    for number, meaning in verbs.EXIT_CODES.items():
        assert f"{number} {meaning}" in text
    assert "gen" in text
    kinds = (TieredError, Invalid, Refused, Unavailable, NotFound, Conflict, Fenced, Corrupt)
    assert {kind.exit_code for kind in kinds} <= set(verbs.EXIT_CODES)


@pytest.mark.parametrize("words", [(), ("config",), ("replay",)])
def test_a_line_that_ends_before_a_verb_is_answered_with_help(run: Run, words: tuple[str, ...]) -> None:
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    assert out == run(*words, "--help")[1]
    assert ("Commands:" if words else "Everyday:") in out
    assert "..." not in out.replace("[ARGS]...", ""), "summaries are whole"


@pytest.mark.parametrize("verb", [*verbs.VERBS, "config print", "replay status"])
def test_the_help_of_every_verb_names_debug(run: Run, verb: str) -> None:
    if verb == "spark":  # a job has its own flags
        return
    code, out, _ = run(*verb.split(), "--help")
    assert code == 0
    assert "--debug" in out


def test_help_before_a_verb_is_its_help(run: Run) -> None:
    assert run("help", "verify") == run("verify", "--help")
    assert "tiered verify --archive s3://my-bucket/rocketmq --deep" in run("help", "verify")[1]
    assert run("help") == run("--help")
    assert set(verbs.EXAMPLES) == set(verbs.VERBS)


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"tiered {__version__}\n", "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TieredError("x"), 1),
        (Invalid("x"), 2),
        (Refused("x"), 3),
        (Unavailable("x"), 4),
        (NotFound("x"), 5),
        (Conflict("x"), 6),
        (Fenced("x"), 7),
        (Corrupt("x"), 8),
        (RuntimeError("x"), 70),
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_error_becomes_its_exit_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def command() -> None:
        raise error

    verb(monkeypatch, command)
    got, out, err = run("doctor")
    assert (got, out) == (code, "")
    assert "Traceback" not in err
    got, _, err = run("doctor", "--debug")
    assert got == code
    assert ("Traceback" in err) is (code != 130)


def test_a_verb_may_return_its_own_code(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    verb(monkeypatch, lambda: 1)
    assert run("doctor")[0] == 1


def test_wrong_command_lines(run: Run) -> None:
    for args, named in (
        (("confg",), "config"),
        (("gen",), "--store"),
        (("gen", "--store", "x", "--massages", "1"), "--messages"),
        (("config", "prnt"), "print"),
        (("gen", "--store", "x", "--queues", "many"), "--queues"),
    ):
        code, out, err = run(*args)
        assert (code, out) == (2, "")
        assert named in err
        assert "--help" in err or "did you mean" in err
        assert "Traceback" not in err
    code, _, err = run("gen", "--json")
    assert code == 2
    assert json.loads(err)["error"]["kind"] == "Invalid"


@pytest.mark.parametrize(
    ("words", "lacks", "found"),
    [
        (("read", "--topic", "T", "--queue", "0", "--out", "--json"), "--out", "--json"),
        (("gen", "--store", "--messages", "5"), "--store", "--messages"),
        (("config", "print", "--set", "--json"), "--set", "--json"),
        (("gen", "--store", "--help"), "--store", "--help"),
        (("gen", "--store", "--debug", "--messages", "5"), "--store", "--messages"),
    ],
)
def test_a_flag_is_not_taken_for_a_value(run: Run, words: tuple[str, ...], lacks: str, found: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert f"option {lacks} requires a value" in err
    assert found in err
    verbs = words[: 2 if words[0] == "config" else 1]
    assert f"tiered {' '.join(verbs)} --help" in err


def test_a_value_may_look_like_a_flag(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("gen", "--store=--messages", "--messages", "1", "--topics", "1")[0] == 0
    assert (tmp_path / "--messages").is_dir()


def test_jobs_that_a_wheel_registers_and_does_not_have(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = EntryPoint("spark", "jobs_that_are_not_there:main", REGISTERED)
    monkeypatch.setattr("tiered.cli.spark.entry_points", lambda **chosen: EntryPoints([absent]))
    code, out, err = run("spark", "profile")
    assert (code, out) == (2, "")
    assert "the Spark jobs are not installed" in err
    assert "jobs_that_are_not_there" in err


def test_config_print(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text('[web]\nport = 5\n[store]\nsecret_access_key = "tiger"\n')
    code, out, _ = run("config", "print", "--config", file, "--archive", "s3://b/p")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert rows["web.port"].split()[1:] == ["5", "file", str(file)]
    assert rows["archive.url"].rstrip().endswith("flag --archive")
    assert rows["log.level"].split()[1:] == ["info", "default"]
    assert "tiger" not in out
    code, out, _ = run("config", "print", "--config", file, "--json")
    told = json.loads(out)
    assert told["web.port"] == {"value": 5, "origin": f"file {file}", "unit": None}
    assert "tiger" not in out
    assert set(told["store.secret_access_key"]["value"]) == {"*"}


def test_config_reads_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERED_ARCHIVE_URL", "memory://")
    told = json.loads(run("config", "print", "--json", "--set", "web.port=0")[1])
    assert told["archive.url"] == {
        "value": "memory://",
        "origin": "environment TIERED_ARCHIVE_URL",
        "unit": None,
    }
    assert told["web.port"]["value"] == 0


def test_a_secret_on_the_command_line_is_warned_of(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may list processes reads it."""
    pair = ("--set", "store.access_key_id=AK", "--set", "store.secret_access_key=tiger")
    place = ("--archive", f"file://{tmp_path}/none", *pair)
    for words in (("topics",), ("config", "print"), ("doctor", "--store", tmp_path)):
        _, out, err = run(*words, *place)
        told = " ".join(err.split())
        assert "store.secret_access_key on the command line" in told
        assert "TIERED_STORE_SECRET_ACCESS_KEY" in told
        assert "tiger" not in out + err
    told = json.loads(run("config", "check", "--store", "/s", *place, "--json")[1])
    assert len(told["warnings"]) == 2
    monkeypatch.setenv("TIERED_STORE_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("TIERED_STORE_SECRET_ACCESS_KEY", "tiger")
    assert "command line" not in run("topics", *place[:2])[2]


def test_config_check(run: Run) -> None:
    code, _, err = run("config", "check")
    assert code == 2
    assert "source.store_dir is not set" in err
    code, out, _ = run("config", "check", "--store", "/data/store", "--archive", "file:///archive", "--json")
    assert code == 0
    assert json.loads(out)["hold"] == "/data/store.tiered-hold"
    code, _, err = run("config", "check", "--set", "web.port")
    assert code == 2
    assert "section.key=value" in err


def test_config_default_is_the_file_in_the_repository(run: Run) -> None:
    code, out, _ = run("config", "default")
    assert code == 0
    assert out == (Path(__file__).resolve().parents[2] / "config" / "tiered.toml").read_text(encoding="utf-8")
    assert json.loads(run("config", "default", "--json")[1])["toml"] == out
