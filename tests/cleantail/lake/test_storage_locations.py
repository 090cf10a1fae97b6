"""Two folders are compared by where they are, however they are written; what may be another's is never one's own."""

import pytest

from cleantail.lake.storage_locations import (
    files_outside,
    folder_location,
    location_of,
    overlap,
    surely_inside,
    table_folders,
)


@pytest.fixture
def lake(tmp_path):
    """A folder `a` with `data`, and a link to it beside."""
    (tmp_path / "a" / "data").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    return tmp_path


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("file:{0}/a", "file://{0}/a", id="one slash or three"),
        pytest.param("file:{0}/a/", "{0}/a", id="a slash at the end, no scheme"),
        pytest.param("file://localhost{0}/a", "FILE:{0}/a", id="a host, capitals"),
        pytest.param("{0}/x/../a", "{0}/a", id="dots"),
        pytest.param("{0}//a/./data", "{0}/a", id="double slashes"),
        pytest.param("{0}/link", "{0}/a/data", id="a link"),
        pytest.param("{0}/link/data/x", "{0}/a", id="below a link"),
        pytest.param("{0}/%61", "{0}/a", id="percent-encoded"),
        pytest.param("{0}", "{0}/a", id="around"),
        pytest.param("/", "{0}/a", id="everything"),
        pytest.param("s3://b/x", "s3a://b/x/y", id="two names of one store"),
        pytest.param("s3n://b", "s3://b/x", id="a bucket"),
        pytest.param("s3://b/a%20b", "s3://b/a b/c", id="a blank in a key"),
        pytest.param("s3://b/y/../x", "s3://b/x", id="dots in a key"),
        pytest.param("abfss://c@h.dfs.core/x", "wasb://c@h.blob.core/x/y", id="two names of a host"),
        pytest.param("hdfs:/x", "hdfs://name:8020/x", id="the host that is meant without one"),
        pytest.param("hdfs://nn/wh/x", "hdfs://nn:8020/wh/x", id="a default port"),
        pytest.param("hdfs://nn/wh/x", "hdfs://NN/wh/x/y", id="a host in capitals"),
        pytest.param("hdfs://ns1/wh/x", "hdfs://nn2.example:9000/wh/x", id="a name service and one of its hosts"),
        pytest.param("hdfs://nn/wh/x", "webhdfs://nn:9870/wh/x", id="HDFS by http"),
        pytest.param("hdfs://nn/wh/x", "viewfs://cluster/mounted/x", id="a mount of ViewFs"),
        pytest.param("viewfs://cluster/mounted/x/data", "hdfs://nn/wh/x", id="below a mount of ViewFs"),
        pytest.param("abfss://c@h.dfs.core.windows.net/x", "https://H.blob.core.windows.net/c/x", id="Azure by http"),
        pytest.param("abfss://c@h.dfs.core.windows.net:443/x", "abfs://c@h.dfs.core.windows.net/x", id="Azure's port"),
        pytest.param(
            "abfss://c@h.dfs.core.windows.net./x", "abfs://c@h.dfs.core.windows.net/x", id="Azure's final dot"
        ),
        pytest.param("hdfs://nn.:8020/wh/x", "hdfs://nn/wh/x", id="a final dot"),
        pytest.param("https://h.blob.core.windows.net./c/x", "abfs://c@h.dfs.core.windows.net/x", id="by http"),
        pytest.param("s3://b/x", "https://b.s3.eu-west-1.amazonaws.com/x/y", id="a bucket as a host"),
        pytest.param("s3://b/x", "https://s3.amazonaws.com/b/x", id="a bucket as a path"),
        pytest.param("gs://b/x", "https://storage.googleapis.com/b/x", id="Google by http"),
        pytest.param("s3://b/x", "s3://arn:aws:s3:eu-west-1:1:accesspoint/p/x/y", id="the ARN of an access point"),
        pytest.param("s3://b/x", "s3a://p-abc123-s3alias/x", id="the alias of an access point"),
        pytest.param("cos://b/x", "cosn://b/x", id="two names of COS"),
    ],
)
def test_one_folder_in_two_forms_overlaps(lake, one, other):
    places = [folder_location(text.format(lake)) for text in (one, other)]
    assert overlap(*places) and overlap(*reversed(places))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("/w/orders", "/w/orders_2", id="a longer name"),
        pytest.param("/w/orders", "/w/payments", id="beside"),
        pytest.param("s3://b/x", "s3://c/x", id="another bucket"),
        pytest.param("s3://b/x", "gs://b/x", id="another store"),
        pytest.param("hdfs://nn/wh/x", "viewfs://cluster/mounted/y", id="a mount of another name"),
        pytest.param("s3://b/x", "s3://arn:aws:s3:eu-west-1:1:accesspoint/p/y", id="an access point, another key"),
        pytest.param("https://b.example/x", "s3://b/x", id="an address of no known store"),
        pytest.param("file:/b/x", "s3://b/x", id="files and a store"),
    ],
)
def test_folders_beside_each_other_do_not_overlap(one, other):
    assert not overlap(folder_location(one), folder_location(other))


@pytest.mark.parametrize("file", ["hdfs://other/wh/x/f", "viewfs://nn/wh/x/f", "hdfs://nn:9000/wh/x/f"])
def test_a_file_of_another_host_is_never_surely_inside(file):
    assert files_outside([file, "hdfs://NN:8020/wh/x/f"], "hdfs://nn/wh/x") == [file]


def test_files_are_outside_where_any_reading_of_their_path_is(lake):
    (lake / "a" / "away").symlink_to(lake / "b")
    inside = [f"file:{lake}/a/data/f", f"{lake}/link/data/k=a%2Fb/f", f"file://{lake}/a/f"]
    foreign = [
        f"{lake}/b/f",
        f"{lake}/a/../b/f",
        f"{lake}/a/away/f",
        f"{lake}/a/k=%2F..%2F..%2Fb%2Ff",
        f"{lake}/a",
        "s3://b/f",
        f"{lake}/b/f#/../../a/f",
        f"{lake}/b/f?/../../a/f",
        f"{lake}/a/.\t./b/f",
    ]
    assert files_outside([*inside, *foreign], f"file:{lake}/a/") == foreign


def test_the_own_folders_are_data_and_metadata_or_what_properties_put_in_their_place():
    assert table_folders("s3://b/t/", {}) == [folder_location("s3://b/t/data"), folder_location("s3://b/t/metadata")]
    moved = {"write.data.path": "s3a://b/t/x", "write.metadata.path": "s3://b/other"}
    assert table_folders("s3://b/t", moved) == [folder_location("s3://b/t/x")]


@pytest.mark.parametrize("path", ["/w/t/other/f", "/w/t/f", "/w/t/data2/f"])
def test_what_lies_elsewhere_below_the_location_is_no_orphan_of_ours(path):
    assert not any(surely_inside(location_of(path), folder) for folder in table_folders("/w/t", {}))
