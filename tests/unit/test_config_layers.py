"""Layers, origins, typos: defaults < file < environment < flags, by presence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiered.daemon.config import DEFAULT, Origin, env_name, keys, load, visible, walk
from tiered.daemon.template import default_toml
from tiered.errors import Invalid
from tiered.settings import STARS, Settings

REPO = Path(__file__).resolve().parents[2]


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tiered.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_nothing_given_is_the_defaults() -> None:
    loaded = load()
    assert loaded.settings == Settings()
    assert set(loaded.origins) == set(keys())
    assert all(origin is DEFAULT for origin in loaded.origins.values())


def test_each_layer_wins_over_the_one_below(tmp_path: Path) -> None:
    file = write(
        tmp_path, '[web]\nport = 1\nhost = "h"\n[archive]\nurl = "memory://"\n[log]\nlevel = "debug"\n'
    )
    env = {"TIERED_WEB_PORT": "2", "TIERED_ARCHIVE_URL": "file:///a", "HOME": "/x"}
    loaded = load(file, env, {"web.port": "3"})
    assert loaded.settings.web.port == 3
    assert loaded.settings.web.host == "h"
    assert loaded.settings.archive.url == "file:///a"
    assert str(loaded.origins["web.port"]) == "flag --set web.port"
    assert loaded.origins["archive.url"] == Origin("environment", "TIERED_ARCHIVE_URL")
    assert loaded.origins["web.host"] == Origin("file", str(file))
    assert loaded.origins["state.directory"] is DEFAULT


def test_presence_not_truth(tmp_path: Path) -> None:
    file = write(tmp_path, '[archive]\nurl = "memory://"\n[web]\nport = 5\n[store]\npath_style = true\n')
    loaded = load(file, {"TIERED_ARCHIVE_URL": "", "TIERED_WEB_PORT": "0"}, {"store.path_style": False})
    assert loaded.settings.archive.url == ""
    assert loaded.settings.web.port == 0
    assert loaded.settings.store.path_style is False


def test_flag_names_are_shown_as_typed() -> None:
    loaded = load(flags={"source.store_dir": "/s", "archive.url": "memory://"})
    assert str(loaded.origins["source.store_dir"]) == "flag --store"
    assert str(loaded.origins["archive.url"]) == "flag --archive"


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "[web]\nport = 77\n")
    assert load(env={"TIERED_CONFIG": str(file)}).settings.web.port == 77
    other = tmp_path / "other.toml"
    other.write_text("[web]\nport = 78\n")
    assert load(other, {"TIERED_CONFIG": str(file)}).settings.web.port == 78


@pytest.mark.parametrize(
    ("text", "named", "suggested"),
    [
        ('[archive]\nurll = "x"\n', "archive.urll", "archive.url"),
        ("[dispatch]\ngroup_commit_byte = 1\n", "dispatch.group_commit_byte", "dispatch.group_commit_bytes"),
        ("[dispach]\nthreads = 1\n", "dispach", "dispatch"),
        ('url = "x"\n', "url", "config default"),
        ("[web]\ntakeover_wait_ms = 1\n", "web.takeover_wait_ms", "archive.takeover_wait_ms"),
        ("web = 3\n", "[web]", "config default"),
        ("[web]\nport = \n", "not valid TOML", "config default"),
        ('[web]\nport = "a lot"\n', "web.port", "config default"),
        ("[web]\nport = 700000\n", "web.port", "config default"),
        ("[web.port]\nx = 1\n", "web.port", "config default"),
        ("[web]\nport = " + "9" * 5000 + "\n", "not valid TOML", "config default"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, text: str, named: str, suggested: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(Invalid) as caught:
        load(file)
    told = str(caught.value)
    assert named in told
    assert suggested in told
    assert str(file) in told


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(Invalid) as caught:
            load(path)
        assert str(path) in str(caught.value)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Invalid, match="not valid TOML"):
        load(binary)
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(Invalid, match="too large"):
        load(large)


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("TIERED_ARCHIVE_URLS", "TIERED_ARCHIVE_URL"),
        ("TIERED_ARCHVE_URL", "TIERED_ARCHIVE_URL"),
        ("TIERED_STORE_SECRET", "TIERED_STORE_"),
    ],
)
def test_mistakes_in_the_environment(name: str, suggested: str) -> None:
    with pytest.raises(Invalid) as caught:
        load(env={name: "hunter2"})
    assert name in str(caught.value)
    assert suggested in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_foreign_names_in_the_environment_are_reported_not_fatal() -> None:
    env = {
        "TIERED_PORT_9477_TCP": "tcp://10.0.0.1:9477",
        "TIERED_TEST_CACHE": "/c",
        "TIERED_SERVICE_HOST": "10.0.0.1",
    }
    loaded = load(env=env)
    assert loaded.settings == Settings()
    assert len(loaded.warnings) == 2
    assert all("10.0.0.1" not in warning for warning in loaded.warnings)


def test_an_unknown_flag_key() -> None:
    with pytest.raises(Invalid, match=r"did you mean web\.port"):
        load(flags={"web.prt": "1"})


def test_a_broken_bound_says_where_it_was_written() -> None:
    with pytest.raises(Invalid) as caught:
        load(env={"TIERED_DISPATCH_THREADS": "0"})
    assert "TIERED_DISPATCH_THREADS" in str(caught.value)


def test_every_key_can_come_from_the_environment() -> None:
    names = {env_name(key) for key in keys()}
    assert len(names) == len(keys())
    for key, field in keys().items():
        raw = ",".join(field.default) if isinstance(field.default, tuple) else str(field.default)
        loaded = load(env={env_name(key): raw})
        assert loaded.settings == Settings()
        assert loaded.origins[key].layer == "environment"


def test_secrets_are_stars_and_known() -> None:
    flags = {
        "store.access_key_id": "AKIA1234",
        "store.secret_access_key": "tiger",
        "archive.url": "fsspec+ftp://user:pass%21@host/p?token=t0k&region=eu",
    }
    loaded = load(flags=flags)
    shown = {key: visible(field, value) for key, field, value in walk(loaded.settings)}
    assert shown["store.secret_access_key"] == STARS
    assert shown["store.session_token"] == ""
    assert shown["archive.url"] == f"fsspec+ftp://user:{STARS}@host/p?token={STARS}&region=eu"
    assert set(loaded.secrets()) == {"AKIA1234", "tiger", "pass%21", "t0k"}


def test_the_generated_file_is_the_one_in_the_repository_and_means_the_defaults() -> None:
    path = REPO / "config" / "tiered.toml"
    assert path.read_text(encoding="utf-8") == default_toml(), (
        "run: tiered config default > config/tiered.toml"
    )
    loaded = load(path)
    assert loaded.settings == Settings()
    assert all(origin.layer == "file" for origin in loaded.origins.values())
