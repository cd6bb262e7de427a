"""What stands in deploy/ parses, and its commands, paths and keys exist in the program."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from prometheus_client.metrics import MetricWrapperBase

from tiered.cli.main import build
from tiered.cli.verbs import VERBS
from tiered.daemon.checks import check, check_doors
from tiered.daemon.config import load, walk
from tiered.daemon.doors import SILENT_SECONDS
from tiered.daemon.gateway import state_directory
from tiered.errors import Invalid, Refused
from tiered.gateway.app import DRAIN_SECONDS
from tiered.gateway.transport.fronts import LAST_BYTES_SECONDS
from tiered.metrics import Metrics
from tiered.settings import Watchdog

REPO = Path(__file__).resolve().parents[2]
DEPLOY = REPO / "deploy"
SECONDS = {"": 1, "s": 1, "min": 60}


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def shared_flags() -> set[str]:
    """Flags that ``tiered.cli.options`` declares, as a verb that takes them all understands them."""
    group: Any = typer.main.get_command(build(["config"]))
    return {
        flag for parameter in group.commands["config"].commands["print"].params for flag in parameter.opts
    }


def assert_command(words: list[str]) -> None:
    """``words`` after the program's name: a verb, then known flags."""
    assert words[0] in VERBS
    assert {word for word in words[1:] if word.startswith("--")} <= shared_flags()


def unit(name: str = "tiered.service") -> configparser.ConfigParser:
    parser = configparser.ConfigParser(
        strict=True, interpolation=None, comment_prefixes=("#",), delimiters=("=",)
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / name).read_text(encoding="utf-8"))
    return parser


def variables(name: str) -> dict[str, str]:
    """What a unit sets in the environment, as systemd reads it."""
    words = shlex.split(unit(name)["Service"]["Environment"])
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def seconds(text: str) -> int:
    match = re.fullmatch(r"(\d+)(s|min|)", text)
    assert match is not None
    return int(match[1]) * SECONDS[match[2]]


def test_the_unit_runs_the_program() -> None:
    service = unit()["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert Path(program).name in project()["scripts"]
    assert_command(words)
    assert "--config" in words
    assert service["Type"] == "notify"
    assert service["Restart"] == "on-failure"
    stay_down = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert stay_down == {Refused.exit_code, Invalid.exit_code}


def test_the_unit_leaves_time_for_the_last_flush_and_for_a_stuck_step_to_show() -> None:
    service = unit()["Service"]
    assert seconds(service["TimeoutStopSec"]) * 1000 > Watchdog().drain_ms
    assert seconds(service["WatchdogSec"]) * 1000 > Watchdog().stuck_ms
    assert seconds(service["TimeoutStartSec"]) * 1000 > load().settings.archive.takeover_wait_ms


def test_the_unit_is_hardened_and_one_mount_holds_store_hold_and_state() -> None:
    service = unit()["Service"]
    for key in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictSUIDSGID"):
        assert service[key] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["User"] != "root"
    (writable,) = service["ReadWritePaths"].split()
    settings = load(REPO / "config" / "example-s3.toml").settings
    for path in (settings.source.store_dir, settings.hold_directory, settings.state_directory):
        assert Path(path).parent == Path(writable), "a hard link cannot cross two mounts"


def test_the_gateway_s_unit_runs_it_with_a_state_of_its_own() -> None:
    service = unit("tiered-gateway@.service")["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert Path(program).name in project()["scripts"]
    assert_command(words)
    assert words[0] == "gateway"
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == {
        Refused.exit_code,
        Invalid.exit_code,
    }
    assert seconds(service["TimeoutStopSec"]) > DRAIN_SECONDS + LAST_BYTES_SECONDS
    assert seconds(service["WatchdogSec"]) > SILENT_SECONDS
    (state,) = variables("tiered-gateway@.service").values()
    assert state == f"%S/{service['StateDirectory']}"
    found = load(REPO / "config" / "example-gateway.toml", variables("tiered-gateway@.service"))
    check(found)
    assert state_directory(found.settings) == Path(state)


@pytest.mark.parametrize(
    ("name", "verb", "down"),
    [
        ("tiered-node.service", ["serve"], {Invalid.exit_code}),
        ("tiered-keyvalue.service", ["kv", "serve"], {Refused.exit_code, Invalid.exit_code}),
    ],
)
def test_the_units_of_readers_run_them_with_directories_of_their_own(
    name: str, verb: list[str], down: set[int]
) -> None:
    service = unit(name)["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert Path(program).name in project()["scripts"]
    assert words[: len(verb)] == verb
    assert "--config" in words
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == down
    assert seconds(service["WatchdogSec"]) > SILENT_SECONDS
    assert service["ProtectSystem"] == "strict"
    (directory,) = variables(name).values()
    made = {"%S": "StateDirectory", "%t": "RuntimeDirectory"}[directory.partition("/")[0]]
    assert directory.partition("/")[2] == service[made]
    settings = load(env=variables(name)).settings
    assert directory in (settings.serve.state_directory, settings.kv.state_directory)


def test_the_drop_in_for_replay_switches_it_on() -> None:
    found = load(REPO / "config" / "example-s3.toml", variables("tiered-replay.conf"))
    check(found)
    assert found.settings.replay.enabled
    assert found.settings.replay.groups == ("billing", "mail-*")
    assert unit("tiered-replay.conf").sections() == ["Service"]


INSTRUCTIONS = re.findall(
    r"\w+", "ARG FROM RUN CMD ENTRYPOINT COPY WORKDIR USER ENV EXPOSE STOPSIGNAL HEALTHCHECK"
)


def dockerfile() -> list[tuple[str, str]]:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def only(instruction: str) -> str:
    (argument,) = [rest for name, rest in dockerfile() if name == instruction]
    return argument


def test_the_image_builds_from_files_that_exist() -> None:
    assert all(name in INSTRUCTIONS for name, _ in dockerfile())
    assert [name for name, _ in dockerfile()[:2]] == ["ARG", "FROM"]
    stages = [rest for name, rest in dockerfile() if name == "FROM"]
    assert all(stage.startswith("python:3.11-slim") for stage in stages)
    for name, rest in dockerfile():
        if name == "COPY":
            for source in rest.split()[:-1]:
                assert (REPO / source).exists(), source
    runs = " ".join(rest for name, rest in dockerfile() if name == "RUN")
    assert runs.startswith('locks="requirements.lock"')
    assert '--require-hashes -r "$lock"' in runs
    assert f'"{project()["name"]}[$EXTRAS]"' in runs


def package(pin: str) -> str:
    """The name in a line of a lock, without version and extras."""
    return re.split(r"[\[=]", pin, maxsplit=1)[0]


def test_the_image_has_the_extras_that_it_is_built_with_and_seals_by_default() -> None:
    """Each extra that needs more than the lock of all has a lock of its own, which the build finds by its name."""
    names = [name for name, _ in dockerfile()]
    arguments = [rest for name, rest in dockerfile() if name == "ARG"]
    default = arguments[0].removeprefix("EXTRAS=").split(",")
    assert arguments[1:] == ["EXTRAS"] * names.count("FROM"), "each stage asks for it anew"
    known = project()["optional-dependencies"]
    assert "parquet" in default
    assert set(default) <= set(known)
    copied = " ".join(rest for name, rest in dockerfile() if name == "COPY").split()
    users = {package(pin) for pin in locked("requirements.lock")}
    for extra in ("s3fs", "parquet", "encryption", "iceberg"):
        wanted = {re.split(r"[^\w.-]", need, maxsplit=1)[0].lower() for need in known[extra]}
        lock = f"requirements-{extra}.lock"
        if not wanted <= users:
            assert lock in copied
            assert wanted <= {package(pin) for pin in locked(lock)} | users


def test_the_image_has_every_package_of_the_wheel() -> None:
    """``tiered spark`` is registered in any wheel, so the jobs must be in the image's."""
    text = (REPO / "pyproject.toml").read_text(encoding="utf-8")
    packages = tomllib.loads(text)["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert len(packages) == 3
    copied = {rest for name, rest in dockerfile() if name == "COPY"}
    assert {f"{package} ./{package}" for package in packages} <= copied


def locked(name: str) -> set[str]:
    text = (REPO / name).read_text(encoding="utf-8")
    return {
        line.removesuffix(" \\")
        for line in text.splitlines()
        if re.match(r"[a-z0-9._-]+(\[[a-z0-9, -]+\])?==", line)
    }


def test_developers_have_what_users_have_and_users_no_tools() -> None:
    users, developers = locked("requirements.lock"), locked("requirements-dev.lock")
    assert users < developers
    names = {package(pin) for pin in users}
    assert {"numpy", "typer"} <= names
    assert not names & {"pytest", "mypy", "moto", "hypothesis", "ruff", "pyspark"}


def test_the_image_runs_the_program_as_nobody_special() -> None:
    entry, command = yaml.safe_load(only("ENTRYPOINT")), yaml.safe_load(only("CMD"))
    assert entry[0] in project()["scripts"]
    assert_command([*entry[1:], *command])
    assert only("USER").split(":")[0] not in ("0", "root")
    env = dict(pair.split("=", 1) for pair in only("ENV").split())
    assert not load(env=env).warnings
    port = load().settings.web.port
    assert only("EXPOSE") == str(port)
    assert f"127.0.0.1:{port}/healthz" in only("HEALTHCHECK")


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    return document


def test_compose_gives_settings_that_hold() -> None:
    sidecar = compose()["services"]["tiered"]
    assert_command(sidecar["command"])
    loaded = load(env=sidecar["environment"])
    assert not loaded.warnings
    check(loaded, writer=True)
    assert (DEPLOY / sidecar["build"]["context"]).resolve() == REPO
    assert (REPO / sidecar["build"]["dockerfile"]).is_file()
    assert seconds(sidecar["stop_grace_period"]) * 1000 > Watchdog().drain_ms
    published = sidecar["ports"][0].rsplit(":", 2)
    assert published == ["127.0.0.1", str(loaded.settings.web.port), str(loaded.settings.web.port)]


def test_compose_shares_the_parent_of_the_store_and_agrees_with_the_broker() -> None:
    document = compose()
    services = document["services"]
    settings = load(env=services["tiered"]["environment"]).settings
    lines = document["configs"]["broker-conf"]["content"].splitlines()
    broker = dict(re.split(r"\s*=\s*", line) for line in lines if line)
    assert broker["storePathRootDir"] == settings.source.store_dir
    assert (broker["storePathCommitLog"],) == settings.commitlog_directories
    assert broker["brokerName"] == settings.source.broker
    assert broker["brokerClusterName"] == settings.source.cluster
    shared = set(services["broker"]["volumes"]) & set(services["tiered"]["volumes"])
    (mount,) = {volume.split(":")[1] for volume in shared}
    assert Path(settings.hold_directory).is_relative_to(mount)
    assert Path(settings.source.store_dir).parent == Path(mount)
    for service in services.values():
        assert {volume.split(":")[0] for volume in service.get("volumes", [])} <= set(document["volumes"])
        assert set(service.get("depends_on", {})) <= set(services)
        assert {entry["source"] for entry in service.get("configs", [])} <= set(document["configs"])


@pytest.mark.parametrize(
    ("guide", "path"),
    [
        ("README.md", "config/example-s3.toml"),
        ("README.md", "deploy/tiered.service"),
        ("gateway.md", "config/example-gateway.toml"),
        ("gateway.md", "deploy/tiered-gateway@.service"),
        ("nodes.md", "deploy/tiered-node.service"),
        ("nodes.md", "deploy/kubernetes-nodes.yaml"),
        ("keyvalue.md", "deploy/tiered-keyvalue.service"),
        ("replay.md", "deploy/tiered-replay.conf"),
    ],
)
def test_the_guide_names_files_that_exist(guide: str, path: str) -> None:
    assert path in (DEPLOY / guide).read_text(encoding="utf-8")
    assert (REPO / path).is_file()


@pytest.mark.parametrize("guide", ["gateway.md", "keyvalue.md", "nodes.md", "replay.md"])
def test_metrics_and_settings_in_a_guide_exist(guide: str) -> None:
    text = (DEPLOY / guide).read_text(encoding="utf-8")
    exposed = Metrics().expose().decode()
    for name in re.findall(r"`(tiered_[a-z_]+)", text):
        assert name.removesuffix("_") in exposed, name
    known = {key for key, _, _ in walk(load().settings)}
    for key in re.findall(r"`((?:gateway|fetch|kv|replay|serve|source)\.[a-z_0-9]+)", text):
        assert key in known, key


def test_the_guide_uses_verbs_and_settings_that_exist() -> None:
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    for verb in re.findall(r"`tiered (\w+)", text):
        assert verb in VERBS


def manifests(name: str = "kubernetes.yaml") -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def containers(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = manifest["spec"]["template"]["spec"]["containers"]
    return found


def test_the_kubernetes_example_fits_the_schemas() -> None:
    import kubernetes_validate  # late: slow to import, and no other test needs it

    found = manifests()
    assert {m["kind"] for m in found} == {
        "ConfigMap",
        "Service",
        "Deployment",
        "StatefulSet",
        "PersistentVolumeClaim",
    }
    for manifest in found:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_read_nodes_in_kubernetes_announce_themselves_in_the_bucket() -> None:
    import kubernetes_validate  # late: slow to import

    (nodes,) = manifests("kubernetes-nodes.yaml")
    kubernetes_validate.validate(nodes, kubernetes_validate.latest_version(), strict=True)
    pods = nodes["spec"]["template"]["spec"]
    (container,) = pods["containers"]
    assert_command(container["args"])
    loaded = load(env={one["name"]: one.get("value", "of a secret") for one in container["env"]})
    check(loaded)
    check_doors(loaded.settings, "serve")
    assert loaded.settings.serve.membership == "bucket"
    assert pods["terminationGracePeriodSeconds"] * 1000 > loaded.settings.serve.drain_ms + 10_000


def test_the_kubernetes_example_runs_verbs_with_settings_that_exist() -> None:
    found = manifests()
    shared = next(m["data"] for m in found if m["kind"] == "ConfigMap" and m["metadata"]["name"] == "tiered")
    ran = []
    for manifest in found:
        if manifest["kind"] not in ("Deployment", "StatefulSet"):
            continue
        for container in containers(manifest):
            if not container["image"].startswith("rocketmq-tiered"):
                continue
            ran.append(container["args"][0])
            assert_command(container["args"])
            own = {entry["name"]: entry["value"] for entry in container["env"]}
            loaded = load(env={**shared, **own})
            assert loaded.settings.archive.url == "s3://bucket/prefix"
    assert ran == ["run", "gateway"]


def test_the_kubernetes_gateway_listens_where_its_service_leads() -> None:
    found = manifests()
    service = next(m for m in found if m["kind"] == "Service" and m["metadata"]["name"] == "gateway")
    deployment = next(m for m in found if m["kind"] == "Deployment" and m["metadata"]["name"] == "gateway")
    own = {entry["name"]: entry["value"] for entry in containers(deployment)[0]["env"]}
    first, last = own["TIERED_GATEWAY_BROKER_LISTEN_PORTS"].split("-")
    ports = {entry["port"] for entry in service["spec"]["ports"] if entry["name"].startswith("broker")}
    assert ports == set(range(int(first), int(last) + 1))
    listened = {entry["containerPort"] for entry in containers(deployment)[0]["ports"]}
    assert ports <= listened
    assert own["TIERED_GATEWAY_ADVERTISE_HOST"] == service["metadata"]["name"]
    namesrv = int(own["TIERED_GATEWAY_NAMESRV_LISTEN"].rpartition(":")[2])
    assert namesrv in listened


def named_metrics(expression: str) -> set[str]:
    """Names of our metrics in an expression of Prometheus."""
    return set(re.findall(r"\btiered_[a-z_]+", expression))


def exposed_kinds() -> dict[str, str]:
    """Our metrics, and the type of each."""
    return dict(re.findall(r"^# TYPE (tiered_\w+) (\w+)$", Metrics().expose().decode(), re.MULTILINE))


def labels_of(metric: str) -> set[str]:
    """Names of the labels that a metric is declared with."""
    declared = Metrics().registry._names_to_collectors[metric]
    assert isinstance(declared, MetricWrapperBase), metric
    return set(declared._labelnames)


def alerts(name: str) -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / f"{name}-alerts.yaml").read_text(encoding="utf-8"))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


@pytest.mark.parametrize(
    ("name", "guide", "headings", "counters"),
    [("sinks", "sinks.md", r"Sink\w+", False), ("archive", "alerts.md", r"\w+", True)],
)
def test_alerts_ask_for_what_is_exposed_and_each_has_its_page(
    name: str, guide: str, headings: str, counters: bool
) -> None:
    pages = re.findall(rf"^## ({headings})$", (DEPLOY / guide).read_text(encoding="utf-8"), re.MULTILINE)
    assert [rule["alert"] for rule in alerts(name)] == pages, "a heading for each, in their order"
    kinds = exposed_kinds()
    for rule in alerts(name):
        named = named_metrics(rule["expr"])
        assert named, rule["alert"]
        for metric in named:
            # A counter is only asked how much it grew, by its full name: what it has come to says nothing of now.
            kind = "counter" if counters and metric.endswith("_total") else "gauge"
            assert kinds.get(metric) == kind, rule["alert"]
            if metric.endswith("_total"):
                assert f"increase({metric}[" in rule["expr"], rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["runbook"] == f"deploy/{guide}#{rule['alert'].lower()}"
        shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert shown <= set.union(*(labels_of(metric) for metric in named)), rule["alert"]
        if any(metric.startswith("tiered_sink_") for metric in named):
            assert shown == {"sink"}, rule["alert"]


def test_no_figure_of_sinks_is_left_out_of_the_dashboard_and_the_guide() -> None:
    board = json.loads((DEPLOY / "sinks-dashboard.json").read_text(encoding="utf-8"))
    shown = {
        name
        for panel in board["panels"]
        for target in panel.get("targets", [])
        for name in named_metrics(target["expr"])
    }
    figures = {name for name in exposed_kinds() if name.startswith(("tiered_sink_", "tiered_sinks_"))}
    assert shown == figures
    guide = (DEPLOY / "sinks.md").read_text(encoding="utf-8")
    assert {name for name in named_metrics(guide) if name.startswith("tiered_sink")} == figures
    places = [tuple(panel["gridPos"][side] for side in "xy") for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in board["panels"]}) == len(places)


def test_what_is_started_is_asked_whether_it_is_ready_and_keeps_its_ports() -> None:
    for manifest in (one for one in manifests() if one["kind"] in ("Deployment", "StatefulSet")):
        for container in containers(manifest):
            assert "readinessProbe" in container, container["name"]
        assert not any(
            "emptyDir" in volume for volume in manifest["spec"]["template"]["spec"].get("volumes", [])
        )


@pytest.mark.parametrize("name", ["tiered", "tiered-gateway@", "tiered-keyvalue", "tiered-node"])
def test_the_documentation_of_a_unit_is_installed(name: str) -> None:
    path = unit(f"{name}.service")["Unit"]["Documentation"].removeprefix("file://")
    assert f"install -D -m 644 -t {Path(path).parent} deploy/*.md" in (DEPLOY / "README.md").read_text(
        "utf-8"
    )
    assert (DEPLOY / Path(path).name).is_file()
