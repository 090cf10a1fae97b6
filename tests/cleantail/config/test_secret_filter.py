"""Which keys and values of YAML are refused as secrets, and that no error says what was in them."""

import json

import pytest

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.loading import DefaultsFile, load_platform, load_topic
from cleantail.config.platform import Platform
from cleantail.config.platform_configs import CleanerConfigs
from cleantail.config.secret_filter import is_secret, is_secret_value
from cleantail.config.topic import Topic
from cleantail.errors import ConfigError
from cleantail_cli import main

SECRET_KEYS = [
    "s3.signer.key",
    "spark.signer-key",
    "header.Authorization",
    "rest.authorization",
    "rest.auth",
    "header.X-Auth",
    "header.Cookie",
    "spark.hadoop.fs.azure.sas.fixed.token.x",
    "spark.hadoop.fs.azure.sas.container.account.blob.core.windows.net",
    "fs.azure.sas.container.account",
    "adls.sas-token.x",
    "adls.account-key",
    "adls.connection-string",
    "connectionString",
    "conn_str",
    "spark.ssl.keyPass",
    "spark.ssl.keyPassword",
    "spark.ssl.key-pass",
    "storepass",
    "pwd",
    "PWD",
    "db.pwd",
    "dbPwd",
    "pass",
    "userPass",
    "apikey",
    "api-key",
    "api_key",
    "apiKey",
    "X-API-Key",
    "access_key",
    "accessKey",
    "s3.secret-access-key",
    "s3.access-key-id",
    "private",
    "private.key",
    "privateKey",
    "credential",
    "credentials",
    "creds",
    "token",
    "oauth.token",
    "bearer",
    "bearerToken",
    "jwt",
    "signature",
    "sig",
    "sasl.jaas.config",
    "client_secret",
    "shared-key",
    "header.Ocp-Apim-Subscription-Key",
    "header.x-functions-key",
    "spark.hadoop.master.key",
    "hmac-key",
    "sshKey",
    "passcode",
    "userpwd",
    "decryption-key",
    "spark.x.decryptionKey",
    "s3.sse.key",
    "dsn",
    "sentry.dsn",
    "sentryDsn",
]
HONEST = [
    ("compaction.strategy.header", "version"),
    ("spark.authenticate", True),
    ("spark.authenticate", "true"),
    ("spark.ssl.enabled", True),
    ("spark.authenticate.enableSaslEncryption", True),
    ("spark.network.crypto.saslFallback", False),
    ("spark.network.crypto.authEngineVersion", 2),
    ("spark.kubernetes.authenticate.driver.serviceAccountName", "spark"),
    ("author", "me"),
    ("authors", "we"),
    ("partition key", "id"),
    ("key", "id"),
    ("primary.keys", "id"),
    ("spark.ssl.keyStore", "/etc/ssl/store.p12"),
    ("spark.ssl.keyStoreType", "PKCS12"),
    ("spark.ssl.protocol", "TLSv1.3"),
    ("spark.hadoop.hadoop.security.authentication", "kerberos"),
    ("spark.hadoop.hadoop.security.authorization", True),
    ("spark.hadoop.fs.azure.account.auth.type.mine.dfs.core.windows.net", "OAuth"),
    ("spark.hadoop.fs.azure.account.auth.type", "SharedKey"),
    ("spark.hadoop.fs.azure.sas.token.provider.type", "org.example.azure.SasProvider"),
    ("spark.hadoop.fs.s3a.aws.credentials.provider", "com.amazonaws.auth.InstanceProfileCredentialsProvider"),
    ("rest.auth.type", "basic"),
    ("rest.auth.basic.username", "lake"),
    ("rest.sigv4-enabled", True),
    ("rest.signing-region", "eu-central-1"),
    ("oauth2-server-uri", "https://login.example.org/oauth"),
    ("token-exchange-enabled", False),
    ("token-expires-in-ms", 3_600_000),
    ("token-expires-in-ms", "3600000"),
    ("spark.io.encryption.keySizeBits", 256),
    ("spark.network.crypto.keyLength", 128),
    ("scope", "catalog"),
    ("spark.kubernetes.authenticate.oauthTokenFile", "/run/secrets/token"),
    ("spark.hadoop.google.cloud.auth.service.account.json.keyfile.path", "/run/key.json"),
    ("compass.position", "n"),
    ("bypass", "on the left"),
    ("signal", "x"),
    ("sash", "x"),
    ("s3.path-style-access", True),
    ("s3.sse.type", "kms"),
    ("s3.sse.key", "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab"),
    ("spark.sql.parquet.compression.codec", "zstd"),
]
SECRET_VALUES = [
    "Bearer abc.def",
    "bearer abc",
    "Basic dXNlcjpwYXNz",
    "basic x",
    "Authorization: Bearer abc",
    "sig=abc%3D",
    "sv=2024&se=x&sig=abc",
    "https://a.blob.core.windows.net/c?sv=1&sig=abc",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abc==;EndpointSuffix=core.windows.net",
    "BlobEndpoint=https://x;SharedAccessSignature=sv=1",
    "SharedAccessSignature sr=x",
    "https://user:pw@host/x",
    "https://ghx0token@host/x",
    "postgresql+psycopg2://user:pa/ss@host:5432/db",
    "postgresql://:p@host/db",
    "postgresql://user:80a@host/db",
    "jdbc:postgresql://h/d?user=a&password=b",
    "Server=x;Pwd=b",
    "api_key=abc",
    "-Djavax.net.ssl.trustStorePassword=b",
    "-----BEGIN RSA PRIVATE KEY-----",
    "AKIAABCDEFGHIJKLMNOP",
    "ghp_abcdefghijklmnopqrstuvwxyz",
    "xoxb-1234-abcd",
    "https://hooks.slack.com/services/T0/B0/x",
    "https://discord.com/api/webhooks/12/x",
    "https://discordapp.com/api/webhooks/12/x",
    "https://x.webhook.office.com/webhookb2/1",
    "https://outlook.office.com/webhook/1",
    "ASIAABCDEFGHIJKLMNOP",
    "github_pat_11ABCDEFG0abcdefghijklmnop",
    "x glpat-abcdefghij0123456789",
    "sk_live_" + "a0" * 12,
    "AIza" + "Sy-_x" * 7,
    "npm_" + "a0" * 18,
    "https://h/x?X-Amz-Signature=ab",
    "https://h/x?sas=ab",
    "https://h/x?a=1&sas=ab",
    "https://h/x?auth=ab",
    "https://h/x?auth=basicx",
    "sk-proj-" + "aB3_" * 10,
    "sk-ant-api03-" + "aB3_" * 10,
    "sk-" + "aB3d" * 12,
    "ya29." + "a0Af_" * 8,
    "1//0" + "gAbC_" * 8,
    "GOCSPX-" + "aB3_" * 7,
    "hf_" + "aB3d" * 9,
    "dop_v1_" + "0a" * 32,
    "xai-" + "aB3" * 20,
    "nvapi-" + "aB3_" * 12,
    "ntn_" + "a1B" * 15,
    "figd_" + "a1B-" * 10,
    "r8_" + "a1B" * 13,
    "pplx-" + "a1B" * 16,
    "sntrys_eyJ" + "a1B" * 16,
    "tskey-auth-" + "a1B" * 8,
    "NRAK-" + "A1B" * 9,
    "pul-" + "0a" * 20,
    "ops_eyJ" + "a1B" * 16,
    "doo_v1_" + "0a" * 32,
    "SG." + "aB3_" * 5 + "ab." + "aB3_" * 10,
    "x dapi" + "0a" * 16,
    "hvs." + "aB3_" * 8,
    "sk_test_" + "a0" * 12,
    "whsec_" + "aB3d" * 8,
    "pypi-AgEIcHlwaS5vcmc" + "aB3_" * 10,
    "dckr_pat_" + "aB3_" * 7,
    "AVNS_" + "aB3d" * 5,
    "cflt" + "aB3d" * 8,
    "sk-or-v1-" + "0a" * 32,
    "sk-" + "0a" * 16,
    "ABSK" + "aB3d" * 10,
    "bedrock-api-key-" + "aB3d" * 8,
    "glc_eyJ" + "aB3d" * 8,
    "sbp_" + "0a" * 20,
    "sb_secret_" + "aB3d" * 6,
    "PMAK-" + "0a" * 12 + "-" + "0a" * 17,
    "lsv2_pt_" + "0a" * 16 + "_0a0b0c0d0e",
    "pscale_pw_" + "aB3d" * 10,
    "xkeysib-" + "0a" * 32,
    "dt0c01." + "AB3D" * 6 + "." + "AB3D" * 16,
    "ATBB" + "aB3d" * 8,
    "ATCTT3xFfG" + "aB3d" * 10,
    "CCIPAT_" + "aB3d" * 8,
    "HRKU-" + "0a1b-" * 7,
    "aB3dEf" + ".atlasv1." + "aB3d" * 15,
    "abc8Q~" + "aB3d" * 9,
    "AKCp" + "aB3d" * 17,
    "glrt-" + "aB3_" * 6,
    "xapp-1-A0B1C2-" + "12" * 10,
    "dp.pt." + "aB3d" * 10,
    "glsa_" + "aB3d" * 8,
    "https://h/x?key=ab",
    "https://h/x?a=1&key=AIzaX",
    "https://h/x?X-Goog-Signature=ab",
    "password: x",
    "user: a\npassword: x\n",
    "user: a password: x host: b",
    "{'password': 'x', 'user': 'a'}",
    "login a with password: correct7horse",
    "the password=x",
    "jdbc:oracle:thin:u/p@//h:1521/s",
    "jdbc:oracle:thin:u/p@h",
    "postgresql://u:12345/x@h",
    "see postgresql://u:1/2/3@h:5432/d",
    "https://u:p@h:8181/lake@main",
]


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_a_key_of_a_secret_is_known(key):
    assert is_secret(key, "hunter2")
    assert is_secret(key, 12345)
    assert not is_secret(key, True)


@pytest.mark.parametrize(("key", "value"), HONEST, ids=lambda value: str(value))
def test_an_honest_setting_is_not_refused(key, value):
    assert not is_secret(key, value)


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_a_value_that_is_written_as_a_secret_is_known(value):
    assert is_secret_value(value)


@pytest.mark.parametrize(
    "value",
    [
        "Basic data of customers",
        "Bearer of bad news, daily",
        "signal=1",
        "design=new",
        "https://host:8181/x",
        "a@b.example",
    ]
    + [
        "postgresql://user@host:5432/db",
        "https://host:8181/lake@main",
        "abfss://container@account.dfs.core.windows.net/lake",
        "s3://bucket/key",
        "-XX:+UseSerialGC",
        "regress -Dx=y",
        "landing/auth/*.jsonl",
        "landing/sk_live_events/*.jsonl",
        "asiapacificcustomers",
        "Reset of a password: who asked for it and when",
        "password::text",
        "https://h/x?auth=kerberos",
        "https://h/x?a=1&auth=none&b=2",
        "jdbc:oracle:thin:@//host:1521/service",
        "jdbc:oracle:thin:/@wallet",
        "jdbc:postgresql://host:5432/db?user=app@server",
        "git+ssh://git@host:22/x@v1",
        "docker://registry:5000/image@sha256:abc",
        "https://host:8181/x and a@b.example",
        "https://discord.com/invite/x",
        "https://h/x?keys=2",
        "https://h/key=x/a",
        "sk-orders-by-region-and-day",
        "landing/hf_models/*.jsonl",
        "SG.region.east",
        "ya29.example",
        "glue-catalog-of-the-platform-team",
        "risk-adjusted-orders-of-the-whole-of-last-year",
    ],
)
def test_an_honest_value_is_not_refused(value):
    assert not is_secret_value(value)


def test_no_key_of_the_configuration_itself_is_taken_for_a_secret():
    models = (KafkaConfigs, CleanerConfigs, DefaultsFile, Platform, Topic)
    names = [field.alias or name for model in models for name, field in model.model_fields.items()]
    assert [name for name in names if is_secret(name, "x")] == []


@pytest.fixture
def config(tmp_path):
    (tmp_path / "config" / "topics").mkdir(parents=True)
    return tmp_path / "config"


@pytest.mark.parametrize(
    "section",
    [
        "catalog: {properties: {header.Authorization: 'hunter2 xyz'}}",
        "catalog: {properties: {x: 'Bearer hunter2'}}",
        "spark: {conf: {spark.hadoop.fs.azure.sas.x: 'sig=hunter2'}}",
        "spark: {conf: {spark.ssl.keyPass: hunter2}}",
        "spark: {conf: {spark.driver.extraJavaOptions: '-Dpassword=hunter2'}}",
        "spark: {conf: {spark.x.pwd: 7777777}}",
    ],
)
def test_a_secret_of_the_platform_is_refused_before_it_goes_onto_a_command_line(config, section):
    (config / "defaults.yaml").write_text(f"platform: {{{section}}}")
    with pytest.raises(ConfigError, match="secrets are not allowed in YAML: set an environment") as caught:
        load_platform(config)
    assert not [part for part in ("hunter2", "7777777") if part in str(caught.value)]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("hunter2: hunter3", "a text of 7 characters"),
        ("x: h", "a text of 1 character"),
        ("x: 7777777", "a number"),
        ("x: 77.5", "a number"),
        ("x: true", "true or false"),
        ("x: {y: hunter3}", "a mapping of 1 key"),
        ("x: [hunter3, {a: hunter3}]", "a list of 2 entries"),
        ("source: {x: hunter3}", "a text of 7 characters"),
        ("config: {segment.mss: hunter3}", "a text of 7 characters"),
    ],
)
def test_of_an_unknown_key_an_error_says_what_its_value_is_and_not_what_it_says(config, line, kind, capsys):
    file = config / "topics" / "a.yaml"
    file.write_text(f"topic: a\n{line}\n")
    with pytest.raises(
        ConfigError, match=rf"unknown key \(its value, {kind}, is not shown\): (known: |docs)"
    ) as caught:
        load_topic(file, config)
    assert caught.value.value is None
    main(["check-config", "--json", "--config", str(config)])
    main(["status", "--config", str(config)])
    said = str(caught.value) + repr(caught.value.problems) + "".join(capsys.readouterr())
    assert not [part for part in ("hunter3", "7777777", "77.5") if part in said]


@pytest.mark.parametrize(
    "line",
    ["owner: {x: hunter3}", "schedule: {x: {y: hunter3}}", "approvers: [{x: hunter3}]", "config: [[hunter3]]"]
    + ["checks: {x: hunter3}", "columns: [{x: hunter3}]", "source: [{x: hunter3}]", "alerts: [{type: {x: hunter3}}]"]
    + ["checks: [{expectation: {x: hunter3}}]", "alerts: [{type: mail, to: [{x: hunter3}]}]"],
)
def test_what_a_mapping_holds_is_never_in_an_error(config, line):
    file = config / "topics" / "a.yaml"
    file.write_text(f"topic: a\n{line}\n")
    with pytest.raises(ConfigError, match=r"a\.yaml:2: ") as caught:
        load_topic(file, config)
    assert "hunter3" not in str(caught.value)


@pytest.mark.parametrize("value", ["password=hunter3", "https://u:hunter3@h/x", "password: hunter3"])
@pytest.mark.parametrize(
    "line",
    ["topic: {}", "owner: {}", "schedule: {}", "config: {{cleanup.policy: {}}}", "config: {{segment.ms: {}}}"]
    + ["config: {}", "source: {}", "source: {{path: {}}}", "source: {{encoding: {}}}", "approvers: [a, {}]"]
    + ["alerts: [{{type: {}}}]", "alerts: [{{type: mail, to: [{}]}}]", "checks: [{{expectation: {}}}]", "{}: 1"]
    + ["config: {{{}: 1}}", "{0}: 1\n{0}: 1"],
)
def test_a_wrong_value_of_a_known_key_is_not_shown_where_it_is_a_secret(config, line, value, capsys):
    file = config / "topics" / "a.yaml"
    written = line.format(json.dumps(value))
    file.write_text(f"{written}\n" if line.startswith("topic") else f"topic: a\n{written}\n")
    with pytest.raises(ConfigError, match=r"a\.yaml") as caught:
        load_topic(file, config)
    main(["check-config", "--json", "--config", str(config)])
    main(["status", "--config", str(config)])
    said = str(caught.value) + repr(caught.value.problems) + "".join(capsys.readouterr())
    assert "hunter3" not in said


def test_a_wrong_value_of_a_known_key_is_shown(config):
    file = config / "topics" / "a.yaml"
    file.write_text(f"topic: a\nconfig: {json.dumps({'cleanup.policy': 'compat'})}\n")
    with pytest.raises(ConfigError, match='config.cleanup.policy: "compat" is not allowed: compact, delete or'):
        load_topic(file, config)


@pytest.mark.parametrize("key", ["endpoint", "conn_id"])
def test_the_address_of_a_chat_that_was_written_in_the_wrong_place_is_not_repeated(config, key):
    alert = {"type": "webhook", "conn_id": "cleantail_x", key: "https://chat.example/api/webhooks/1/hunter3"}
    file = config / "topics" / "a.yaml"
    file.write_text(json.dumps({"topic": "a", "alerts": [alert]}))
    wrong = rf"alerts\[0\]\.{key}: a text of 43 characters with an address in it is not allowed"
    with pytest.raises(ConfigError, match=wrong) as caught:
        load_topic(file, config)
    assert "hunter3" not in str(caught.value) + repr(caught.value.problems)
