"""docker-compose.yaml as text: pinned, watched, without literal secrets, on loopback only. No container engine needed."""

from __future__ import annotations

import re
import socket
import stat
import struct
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))

TEXT = (ROOT / "docker-compose.yaml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
EXAMPLE = (ROOT / ".env.example").read_text()
CODE = "\n".join(line for line in TEXT.splitlines() if not line.startswith("#"))
VARIABLE = re.compile(r"\$\{(\w+)([:?-]*)")
SECRET_NAME = re.compile(r"PASSWORD|SECRET|_KEY\b|KEY_ID|TOKEN|SQL_ALCHEMY_CONN")
NOT_SECRET = ("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE",)

long_running = sorted(name for name, service in SERVICES.items() if service.get("restart") != "no")
every_service = pytest.mark.parametrize("name", sorted(SERVICES))


def required_variables() -> set[str]:
    return {name for name, form in VARIABLE.findall(CODE) if not form.startswith(":-")}


def named_in_example(commented: bool) -> set[str]:
    return set(re.findall(r"^#(\w+)=" if commented else r"^(\w+)=", EXAMPLE, re.MULTILINE))


@every_service
def test_an_image_is_pinned_by_its_version_and_one_of_others_by_its_digest(name: str) -> None:
    ours = "build" in SERVICES[name]
    assert re.search(r":\d+\.\d+[^@]*$" if ours else r":\d+\.\d+[^@]*@sha256:[0-9a-f]{64}$", SERVICES[name]["image"])


def test_the_base_image_is_pinned_and_the_user_is_not_root() -> None:
    lines = (ROOT / "deploy/Dockerfile").read_text().splitlines()
    [base] = [line for line in lines if line.startswith("FROM")]
    assert re.fullmatch(r"FROM python:3\.11\.14-slim-bookworm@sha256:[0-9a-f]{64}", base)
    assert [line for line in lines if line.startswith("USER")] == ["USER cleantail"]


@pytest.mark.parametrize("name", long_running)
def test_a_long_running_service_is_watched_and_restarted(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert SERVICES[name]["restart"] == "unless-stopped"


@every_service
def test_a_service_waits_for_a_condition_that_the_other_can_meet(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        met = "service_healthy" if other in long_running else "service_completed_successfully"
        assert how["condition"] == met


@every_service
def test_a_service_has_no_privileges(name: str) -> None:
    service = SERVICES[name]
    assert "no-new-privileges:true" in service["security_opt"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "user"} & set(service)
    assert not [volume for volume in service.get("volumes", []) if "docker.sock" in volume]


@every_service
def test_ports_are_published_on_loopback_only(name: str) -> None:
    assert all(str(port).startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


@every_service
def test_a_named_volume_is_declared(name: str) -> None:
    volumes = [v for v in SERVICES[name].get("volumes", []) if isinstance(v, str)]
    named = {v.split(":")[0] for v in volumes if v[0] not in "./$"}
    assert named <= set(COMPOSE["volumes"])


def test_the_passwords_are_where_only_the_one_that_writes_and_the_one_that_reads_them_see_them() -> None:
    mounted = {
        name for name, s in SERVICES.items() if any("/var/lib/airflow-passwords" in v for v in s.get("volumes", []))
    }
    assert mounted == {"airflow-init", "airflow-apiserver"}
    for name in mounted:
        mine, others = ([str(v) for v in SERVICES[n]["volumes"]] for n in (name, "airflow-scheduler"))
        assert set(mine) == {*others, "airflow-passwords:/var/lib/airflow-passwords"}
    file = SERVICES["airflow-apiserver"]["environment"]["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]
    assert file == "/var/lib/airflow-passwords/passwords.json"


@every_service
def test_a_mounted_path_of_the_repository_exists(name: str) -> None:
    volumes = SERVICES[name].get("volumes", [])
    paths = [v.split(":")[0] for v in volumes if isinstance(v, str) and v.startswith("./")]
    assert all((ROOT / path).exists() for path in paths)
    binds = [v for v in volumes if isinstance(v, dict)]
    assert all(v["bind"] == {"create_host_path": False} and v["read_only"] for v in binds)


def test_the_landing_folder_is_created_by_the_person_who_creates_the_secrets(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy/make_env.py").write_text((ROOT / "deploy/make_env.py").read_text())
    (tmp_path / ".env.example").write_text(EXAMPLE)
    subprocess.run([sys.executable, "-I", str(tmp_path / "deploy/make_env.py")], check=True, capture_output=True)
    assert (tmp_path / ".cleantail/landing").is_dir()
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600


SECRET_NEEDS = {
    "POSTGRES_PASSWORD": "postgres",
    "AIRFLOW_DB_PASSWORD": (
        "postgres airflow-init airflow-apiserver airflow-scheduler airflow-dag-processor airflow-triggerer"
    ),
    "CLEANTAIL_CATALOG_PASSWORD": "postgres airflow-apiserver airflow-scheduler cleantail",
    "CLEANTAIL_S3_ACCESS_KEY_ID": "rustfs bucket-init airflow-apiserver airflow-scheduler cleantail",
    "CLEANTAIL_S3_SECRET_ACCESS_KEY": "rustfs bucket-init airflow-apiserver airflow-scheduler cleantail",
    "CLEANTAIL_SPARK_SECRET": "spark-master spark-worker airflow-scheduler cleantail",
    "AIRFLOW_PASSWORD_ADMIN": "airflow-init",
    "AIRFLOW_PASSWORD_VIEWER": "airflow-init",
    "AIRFLOW_FERNET_KEY": "airflow-apiserver airflow-scheduler airflow-dag-processor airflow-triggerer",
    "AIRFLOW_JWT_SECRET": "airflow-apiserver airflow-scheduler",
    "AIRFLOW_API_SECRET_KEY": "airflow-apiserver airflow-scheduler",
    "CLEANTAIL_METRICS_TOKEN": "airflow-apiserver",
}
"""Secret -> the services that use it. The passwords of the two databases are set by Postgres' first start."""


@pytest.mark.parametrize("secret", sorted(required_variables()))
def test_a_secret_is_only_where_it_is_used(secret: str) -> None:
    def has(service: dict[str, Any]) -> bool:
        return any(f"{{{secret}:" in str(value) for value in service.get("environment", {}).values())

    assert {name for name, service in SERVICES.items() if has(service)} == set(SECRET_NEEDS[secret].split())


@every_service
def test_a_service_has_a_limit_of_memory_and_of_its_log_and_reaps_its_children(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"\d+[gm]", service["mem_limit"])
    assert {"max-size", "max-file"} <= set(service["logging"]["options"])
    assert service["init"] is True


def test_the_docs_have_the_sum_of_the_limits_of_memory() -> None:
    def limit(name: str) -> int:
        return int(SERVICES[name]["mem_limit"].removesuffix("g")) * (2 if name == "spark-worker" else 1)

    total = sum(limit(name) for name in long_running)
    assert f"add up to {total} GiB" in (ROOT / "docs/operations.md").read_text()


@pytest.mark.parametrize(("answer", "code"), [(b"\0\0\0\12\0\0\0\1\0\0", 0), (b"", 1)], ids=["answers", "only accepts"])
def test_the_broker_is_healthy_if_it_answers_a_request_for_its_api_versions(answer: bytes, code: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked: list[bytes] = []

        def broker() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as stream:
                asked.append(stream.read(14))
                connection.sendall(answer)

        Thread(target=broker, daemon=True).start()
        [*shell, script] = SERVICES["kafka"]["healthcheck"]["test"][1:]
        script = script.replace("$$", "$").replace("/localhost/9092", f"/127.0.0.1/{server.getsockname()[1]}")
        assert subprocess.run([*shell, script], timeout=20).returncode == code
    api_versions, version, correlation, no_client = 18, 0, 1, -1
    assert asked == [struct.pack(">ihhih", 10, api_versions, version, correlation, no_client)]


@every_service
def test_no_health_check_starts_a_jvm_or_airflow(name: str) -> None:
    test = " ".join(SERVICES[name].get("healthcheck", {}).get("test", []))
    assert not re.search(r"kafka-|airflow jobs", test)


@pytest.mark.parametrize("name", [n for n in SERVICES if n.startswith("airflow-") and n != "airflow-init"])
def test_a_process_of_airflow_is_ended_if_it_is_unhealthy_for_minutes(name: str) -> None:
    command = SERVICES[name]["command"]
    url, component, *rest = command[command.index("deploy/watched.py") + 1 :]
    assert url.startswith("http://") and rest[0] == "airflow"
    assert component in ("", "scheduler", "dag_processor", "triggerer")


IGNORED = (ROOT / ".dockerignore").read_text().split("\n")


def test_only_what_is_named_gets_into_the_image() -> None:
    rules = [line for line in IGNORED if line and not line.startswith("#")]
    assert rules[0] == "*"
    named = {line[1:] for line in rules if line.startswith("!")}
    assert not named & {".", ".env", ".git", ".cleantail", ".venv", "tests"}
    copied = re.findall(r"^COPY \S+ (.+) \S+$", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)
    sources = {source.split("/")[0] for line in copied for source in line.split()} - {"."}
    assert sources <= named
    assert not (ROOT / "deploy/Dockerfile.dockerignore").exists()


@every_service
def test_a_secret_is_never_written_out(name: str) -> None:
    environment = SERVICES[name].get("environment", {})
    secret = {n: v for n, v in environment.items() if SECRET_NAME.search(n) and n not in NOT_SECRET}
    assert all(re.search(r"\$\{\w+:\?[^}]+\}", value) for value in secret.values()), sorted(secret)
    assert all("${" in value for value in environment.values() if re.search(r"://[^/@]+:[^/@]+@", value))


def test_a_variable_without_a_default_is_required_and_is_in_the_example_without_a_value() -> None:
    assert {form for _, form in VARIABLE.findall(CODE)} <= {":?", ":-"}
    assert required_variables() == named_in_example(commented=False)
    assert not re.findall(r"^\w+=.+", EXAMPLE, re.MULTILINE)


def test_a_variable_with_a_default_is_in_the_example_with_it() -> None:
    defaults = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", CODE))
    assert dict(re.findall(r"^#(\w+)=(.*)$", EXAMPLE, re.MULTILINE)) == defaults


def test_the_log_of_the_store_goes_to_the_engine_which_limits_it() -> None:
    assert SERVICES["rustfs"]["environment"]["RUSTFS_OBS_LOG_DIRECTORY"] == ""


def test_make_env_fills_every_secret_with_another_value() -> None:
    from make_env import filled

    values = dict(line.split("=", 1) for line in filled(EXAMPLE).splitlines() if re.match(r"\w+=", line))
    assert set(values) == required_variables()
    assert len(set(values.values())) == len(values)
    assert all(len(value) >= 40 for value in values.values())


def test_make_env_gives_named_secrets_new_values_and_keeps_the_others(tmp_path: Path) -> None:
    for name in ("deploy/make_env.py", ".env.example"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())

    def make_env(*arguments: str) -> tuple[int, dict[str, str]]:
        command = [sys.executable, "-I", str(tmp_path / "deploy/make_env.py"), *arguments]
        code = subprocess.run(command, capture_output=True).returncode
        lines = (tmp_path / ".env").read_text().splitlines()
        return code, dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))

    _, before = make_env()
    code, after = make_env("--again", "AIRFLOW_FERNET_KEY", "POSTGRES_PASSWORD")
    assert code == 0 and stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
    assert {name for name in before if before[name] != after[name]} == {"AIRFLOW_FERNET_KEY", "POSTGRES_PASSWORD"}
    assert after["AIRFLOW_FERNET_KEY"].split(",")[1:] == [before["AIRFLOW_FERNET_KEY"]]
    assert make_env("--again", "POSTGRES_PASWORD") == (2, after)
    code, once_more = make_env("--again", "AIRFLOW_FERNET_KEY")  # a rotation that broke off is begun again
    assert once_more["AIRFLOW_FERNET_KEY"].split(",")[1:] == after["AIRFLOW_FERNET_KEY"].split(",")
    assert make_env("--agian", "POSTGRES_PASSWORD") == (2, once_more)


def test_the_roles_that_are_created_get_their_passwords() -> None:
    created, set_again = (
        (ROOT / "deploy/postgres" / name).read_text() for name in ("create-databases.sh", "set-passwords.sh")
    )
    assert re.findall(r"ALTER ROLE (\w+) PASSWORD", set_again) == [
        "CURRENT_USER",
        *re.findall(r"CREATE ROLE (\w+)", created),
    ]
    assert "create-databases.sh" < "set-passwords.sh", "the image runs them in this order"


def test_passwords_are_written_for_their_owner_only(tmp_path: Path) -> None:
    from init_airflow import write_passwords

    file = tmp_path / "airflow" / "passwords.json"
    for password in ("first", "second"):
        write_passwords(file, {"admin": password})
    assert file.read_text() == '{"admin": "second"}'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [other.name for other in file.parent.iterdir()] == ["passwords.json"]


def test_the_configuration_of_the_services_names_the_services() -> None:
    from cleantail.config.loading import load_platform, load_topics

    platform = load_platform(ROOT / "deploy/config")
    addresses = [platform.catalog.uri, platform.catalog.properties["s3.endpoint"], platform.spark.master]
    assert {str(address).split("://")[1].split(":")[0] for address in addresses} <= set(SERVICES)
    ours, theirs = (
        [t.model_dump(exclude={"source"}) for t in load_topics(ROOT / at)] for at in ("config", "deploy/config")
    )
    assert ours == theirs


def test_the_topics_of_the_services_read_the_broker_of_the_services_which_has_them() -> None:
    from cleantail.config.loading import load_topics
    from cleantail.kafka.client_settings import settings_of_environment

    environment = COMPOSE["x-platform-environment"]
    topics = load_topics(ROOT / "deploy/config")
    for topic in topics:
        assert topic.source.kafka is not None
        address = settings_of_environment(topic.source.kafka, environment)["bootstrap.servers"]
        assert address == SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split("://")[1]
    created = re.search(r"for topic in ([^;]+);", SERVICES["kafka-topics"]["command"][-1])
    assert created is not None and set(created[1].split()) == {topic.kafka_topic for topic in topics}


def test_airflow_submits_to_the_master_of_the_configuration() -> None:
    from cleantail.config.loading import load_platform

    connection = SERVICES["airflow-scheduler"]["environment"]["AIRFLOW_CONN_SPARK_DEFAULT"]
    assert yaml.safe_load(connection)["host"] == load_platform(ROOT / "deploy/config").spark.master


def test_a_task_waits_for_airflows_answer_as_long_as_in_the_embedded_one() -> None:
    name = "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT"
    embedded = (ROOT / "config/airflow.env").read_text().splitlines()
    assert f"{name}={COMPOSE['x-airflow-environment'][name]}" in embedded


def test_the_databases_are_those_of_the_configuration() -> None:
    script = (ROOT / "deploy/postgres/create-databases.sh").read_text()
    connection = COMPOSE["x-airflow-environment"]["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    owners = dict(re.findall(r"CREATE DATABASE (\w+) OWNER (\w+)", script))
    assert owners == {"airflow": "airflow", "iceberg": COMPOSE["x-platform-environment"]["CLEANTAIL_CATALOG_USER"]}
    assert connection.startswith("postgresql+psycopg2://airflow:") and connection.endswith("@postgres:5432/airflow")


def networks(name: str) -> set[str]:
    return set(SERVICES[name]["networks"])


@every_service
def test_each_service_names_its_networks(name: str) -> None:
    assert networks(name) and networks(name) <= set(COMPOSE["networks"])


@pytest.mark.parametrize(
    ("network", "members"),
    [
        (
            "database",
            "postgres airflow-init airflow-apiserver airflow-scheduler airflow-dag-processor airflow-triggerer cleantail",
        ),
        ("store", "rustfs bucket-init airflow-apiserver airflow-scheduler spark-worker cleantail"),
        ("broker", "kafka kafka-topics airflow-apiserver airflow-scheduler spark-worker cleantail"),
        ("store-host", "rustfs"),
        ("spark", "spark-master spark-worker airflow-scheduler cleantail"),
        ("airflow", "airflow-apiserver airflow-scheduler airflow-dag-processor airflow-triggerer"),
    ],
)
def test_only_services_that_need_a_store_share_its_network(network: str, members: str) -> None:
    assert {name for name in SERVICES if network in networks(name)} == set(members.split())


def test_data_is_on_networks_without_a_way_out() -> None:
    inside = {name for name, network in COMPOSE["networks"].items() if (network or {}).get("internal")}
    assert inside == {"database", "store", "broker"}
    assert networks("postgres") <= inside and networks("kafka") <= inside


@every_service
def test_a_published_port_needs_a_network_that_is_not_internal(name: str) -> None:
    outside = {name for name, network in COMPOSE["networks"].items() if not (network or {}).get("internal")}
    assert not SERVICES[name].get("ports") or networks(name) & outside


@pytest.mark.parametrize("name", ["spark-worker", "airflow-scheduler", "cleantail"])
def test_of_several_addresses_spark_takes_that_which_its_master_sees(name: str) -> None:
    command = SERVICES[name].get("entrypoint") or SERVICES[name]["command"]
    assert command[:3] == ["python", "deploy/seen_by.py", "spark-master:7077"]
    assert len(networks(name)) > 1 and networks("spark-master") == {"spark"}


def test_the_address_that_another_host_sees_is_that_of_the_way_to_it() -> None:
    """A machine has several addresses of its own, as a container on several networks has."""
    program = [sys.executable, "-c", "import os; print(os.environ['SPARK_LOCAL_IP'])"]
    for peer in ("127.0.0.1:7077", "127.8.7.6:7077"):
        done = subprocess.run(
            [sys.executable, str(ROOT / "deploy/seen_by.py"), peer, *program], capture_output=True, text=True
        )
        assert done.stdout.strip() == "127.0.0.1", done.stderr
    wrong = subprocess.run(
        [sys.executable, str(ROOT / "deploy/seen_by.py"), "nobody.invalid:1", *program],
        capture_output=True,
        text=True,
        env={"SEEN_BY_SECONDS": "0"},
    )
    assert wrong.returncode == 1 and "nobody.invalid" in wrong.stderr
