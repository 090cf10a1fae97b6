"""Who may connect to a Spark application, and who can read along."""

import pytest

from cleantail.config.loading import load_platform
from cleantail.errors import CleantailError, ConfigError
from cleantail.lake.spark_settings import spark_conf

CLOSED = {"spark.authenticate": True, "spark.network.crypto.enabled": True}


def written(tmp_path, text):
    (tmp_path / "topics").mkdir(exist_ok=True)
    (tmp_path / "defaults.yaml").write_text(text)
    return load_platform(tmp_path, {"CLEANTAIL_HOME": str(tmp_path / "home")})


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]"])
def test_other_users_of_the_machine_cannot_speak_to_a_local_driver(tmp_path, master):
    assert spark_conf(written(tmp_path, f"platform: {{spark: {{master: '{master}'}}}}"))["spark.authenticate"] == "true"


@pytest.mark.parametrize(
    ("spark", "missing"),
    [
        pytest.param("master: 'spark://m:7077'", "spark.authenticate: true and spark.network.crypto", id="nothing"),
        pytest.param("master: yarn", "spark.authenticate: true and", id="yarn"),
        pytest.param("master: 'k8s://https://h'", "spark.authenticate: true and", id="kubernetes"),
        pytest.param(
            "master: 'local-cluster[2,1,1024]'", "spark.authenticate: true and", id="a cluster in one machine"
        ),
        pytest.param(
            "master: yarn, conf: {spark.authenticate: true}", "spark.network.crypto.enabled: true", id="clear"
        ),
        pytest.param(
            "master: yarn, conf: {spark.network.crypto.enabled: true}", "spark.authenticate: true", id="anybody"
        ),
        pytest.param(
            "master: yarn, conf: {spark.authenticate: false, spark.ssl.rpc.enabled: true}",
            "spark.authenticate: true",
            id="switched off",
        ),
    ],
)
def test_a_cluster_master_on_an_open_network_is_refused(tmp_path, spark, missing):
    with pytest.raises(ConfigError, match=missing):
        written(tmp_path, f"platform: {{spark: {{{spark}}}}}")
    assert written(tmp_path, f"platform: {{spark: {{{spark}, insecure: true}}}}").spark.insecure


@pytest.mark.parametrize("master", ["local", "local[*]"])
@pytest.mark.parametrize("value", ["false", '"false"', '"FALSE"', "0", '""'])
def test_a_local_driver_without_authentication_is_refused_unless_marked_insecure(tmp_path, master, value):
    spark = f"master: '{master}', conf: {{spark.authenticate: {value}}}"
    with pytest.raises(
        ConfigError, match=r"spark\.authenticate: true under platform\.spark\.conf, the default of a local master"
    ):
        written(tmp_path, f"platform: {{spark: {{{spark}}}}}")
    assert written(tmp_path, f"platform: {{spark: {{{spark}, insecure: true}}}}").spark.insecure
    assert written(tmp_path, f"platform: {{spark: {{master: '{master}', conf: {{spark.authenticate: true}}}}}}")


@pytest.mark.parametrize("more", ["", ", insecure: true", ", master: 'spark://m:7077', insecure: true"])
@pytest.mark.parametrize("master", ["local[*]", "spark://m:7077"])
def test_the_master_is_named_in_one_place(tmp_path, master, more):
    """Such a setting would win over the master of Airflow's connection without being checked."""
    with pytest.raises(
        ConfigError, match=r"conf\.spark\.master: .* is not allowed: leave it out and set platform\.spark\.master"
    ):
        written(tmp_path, f"platform: {{spark: {{conf: {{spark.master: '{master}'}}{more}}}}}")


@pytest.mark.parametrize("encryption", ["spark.network.crypto.enabled", "spark.ssl.rpc.enabled"])
def test_a_cluster_with_both_is_allowed(tmp_path, encryption):
    text = f"platform: {{spark: {{master: yarn, conf: {{spark.authenticate: true, {encryption}: true}}}}}}"
    assert written(tmp_path, text).spark.master == "yarn"


def test_a_master_from_the_airflow_connection_is_checked_too(tmp_path):
    platform = written(tmp_path, "platform: {}")
    cluster = platform.model_copy(update={"spark": platform.spark.model_copy(update={"master": "spark://m:7077"})})
    with pytest.raises(
        CleantailError, match=r"platform.spark.master spark://m:7077 is not allowed: a local master, or"
    ):
        spark_conf(cluster)
