"""Alerts through a real HTTP server, a real SMTP server and a real file, over Airflow's connections."""

from __future__ import annotations

import contextlib
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from cleantail.config.alert_channels import Event
from cleantail.config.loading import find_topic, load_platform
from cleantail.watch.incidents import Book, Condition, Observation, observed
from cleantail_airflow.alerts import channels
from cleantail_airflow.alerts.alerting import EarlyConditions, notify_channels, notify_now, red_alarms
from cleantail_airflow.outcomes.failures import failures_of
from tests.airflow_environment import BASE_URL
from tests.airflow_site import NOW_MS, Recorder, Site, failure, free_port, parsed, verdict
from tests.alert_sinks import Hook, Mailbox
from tests.cleantail.orders_table import OrdersTable

JUDGED_MS = NOW_MS + 240_000
"""Time at which the check of the run of NOW_MS failed."""
HOSTILE = "{{ 7 * 7 }}<script>alert(1)</script>"


class FakeTask:
    task_id, run_id, dag_id = "check_quality", "manual__1", "orders"
    log_url = f"{BASE_URL}/dags/orders/runs/manual__1/tasks/check_quality"


class Channels:
    """Topic `orders` with these channels in its YAML, and its present problems."""

    def __init__(self, site: Site, *channels: dict[str, Any]) -> None:
        site.topic("orders", alerts=list(channels))
        self.site, self.topic = site, find_topic("orders", site.config)
        self.book, self.runs = Book(), 0

    def tell(self, *found: Condition, red: tuple[dict[str, Any], ...] = (), head: int = 0) -> list[str]:
        """Notify changes since the last call. Returns the channels that were not reached. `head`: the checked snapshot."""
        failures = failures_of("orders", parsed(verdict(4, *red) | {"judged_ms": JUDGED_MS}), {4: head}) if red else []
        conditions = (*found, *red_alarms(failures, (), FakeTask.log_url, NOW_MS, 15_000))
        self.runs += 1
        look = Observation(conditions, lambda _: True, NOW_MS, self.runs, f"run {self.runs}", whole=True)
        self.book = observed(self.book, look)
        topic = self.topic.on(load_platform(self.site.config))
        task = FakeTask()
        task.run_id = look.run_id
        return notify_channels(topic, self, failures, {"ti": task})  # type: ignore[typeddict-item]

    def load(self) -> Book:
        return self.book

    def save(self, book: Book) -> None:
        self.book = book


def lost(reason: str = "the catalog cannot be reached") -> Condition:
    return Condition(Event.RUN_FAILED, "task evaluate", f"evaluate failed: {reason}", FakeTask.log_url)


def connect(monkeypatch: pytest.MonkeyPatch, port: int, **more: Any) -> None:
    connection = {"conn_type": "http", "host": "http://127.0.0.1", "port": port, **more}
    monkeypatch.setenv("AIRFLOW_CONN_CLEANTAIL_OPS_HOOK", json.dumps(connection))


def test_a_webhook_gets_the_failure_as_json(site: Site, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, hook.port)
    Channels(site, {"type": "webhook", "conn_id": "cleantail_ops_hook", "endpoint": "services/lake"}).tell(
        red=(failure(),)
    )
    ((path, posted),) = hook.posts
    assert path == "/services/lake"
    assert (posted["topic"], posted["event"], posted["state"]) == ("orders", "check_failed", "open")
    assert (posted["task"], posted["link"]) == ("check_quality", FakeTask.log_url)
    assert (posted["incident"], posted["open"]) == ("cleantail/orders/check_failed", ["partition 4"])
    assert posted["page"] == f"{BASE_URL}/cleantail/topics/orders#log-4"
    (row,) = posted["failures"]
    assert (row["partition"], row["observed"], row["severity"]) == (4, "3 of 9 records", "critical")
    assert row["expectation"] == "expect_column_values_to_not_be_null"
    headline, reason, observed_line, *_ = posted["text"].splitlines()
    assert headline == "[cleantail] orders: check failed, partition 4 blocked"
    assert "blocked since 2023-11-14 22:17:20 UTC, tried again by the first run after 2023-11-14 22:17:35" in reason
    assert "observed 3 of 9 records" in observed_line


def test_slack_gets_a_body_that_its_incoming_webhooks_take(
    site: Site, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"http://127.0.0.1:{hook.port}/services/T0/B0/x"  # whole, as Slack gives it: its path is the secret
    monkeypatch.setenv("AIRFLOW_CONN_CLEANTAIL_OPS_HOOK", json.dumps({"conn_type": "http", "host": address}))
    channels = Channels(site, {"type": "slack", "conn_id": "cleantail_ops_hook"})
    channels.tell(red=(failure(observed="<!channel>"),))
    ((path, posted),) = hook.posts
    assert (path, list(posted)) == ("/services/T0/B0/x", ["text"])
    assert "observed &lt;!channel&gt;" in posted["text"]
    assert FakeTask.log_url in posted["text"]


def test_apprise_gets_title_and_body_by_the_urls_of_the_connection(
    site: Site, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [{"path": f"json://127.0.0.1:{hook.port}/{tag}", "tag": tag} for tag in ("lake", "other")]
    connection = {"conn_type": "apprise", "extra": {"config": urls}}
    monkeypatch.setenv("AIRFLOW_CONN_APPRISE_DEFAULT", json.dumps(connection))
    channels = Channels(site, {"type": "apprise", "tag": "lake"})
    assert channels.tell(red=(failure(observed=HOSTILE),)) == []
    ((path, posted),) = hook.posts
    assert (path, posted["title"]) == ("/lake", "[cleantail] orders: check failed, partition 4 blocked")
    assert HOSTILE in posted["message"].replace("\u200b", "")
    assert "<script" not in posted["message"]
    hook.status = 500  # the provider's own notifier does not say so
    assert channels.tell() == ["apprise over connection apprise_default"]


def test_a_mail_gets_the_failure_as_a_table(site: Site, mailbox: Mailbox) -> None:
    mail_to = ["ops@lake.example", "dev@lake.example"]
    Channels(site, {"type": "mail", "to": mail_to, "from": "alerts@lake.example"}).tell(red=(failure(),))
    (mail,) = mailbox.mails
    assert mail["Subject"] == "[cleantail] orders: check failed, partition 4 blocked"
    assert (mail["From"], mail["To"]) == ("alerts@lake.example", "ops@lake.example, dev@lake.example")
    (part,) = [part for part in mail.walk() if part.get_content_type() == "text/html"]
    body = part.get_payload(decode=True).decode()  # type: ignore[union-attr]
    for text in (
        "<td>4</td>",
        "<td>expect_column_values_to_not_be_null</td>",
        "3 of 9 records",
        "blocked since",
        FakeTask.log_url,
    ):
        assert text in body


def test_a_mail_without_a_sender_takes_that_of_the_connection(site: Site, mailbox: Mailbox) -> None:
    Channels(site, {"type": "mail", "to": ["ops@lake.example"]}).tell(lost())
    assert mailbox.mails[0]["From"] == "cleantail@lake.example"


def test_an_incident_is_one_mail_and_one_more_when_it_is_over(site: Site, mailbox: Mailbox) -> None:
    channels = Channels(site, {"type": "mail", "to": ["ops@lake.example"]})
    for conditions in ([lost()], [lost("it is still away")], [], []):
        channels.tell(*conditions)
    assert [mail["Subject"] for mail in mailbox.mails] == [
        "[cleantail] orders: evaluate failed",
        "[cleantail] orders: resolved: evaluate failed",
    ]
    assert channels.book.incidents == {}


def test_a_file_gets_one_line_for_each_message(site: Site) -> None:
    channels = Channels(site, {"type": "file", "path": "alerts/orders.jsonl"})
    channels.tell(lost())
    channels.tell()
    lines = (site.home / "alerts" / "orders.jsonl").read_text().splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["open", "over"]


def test_a_broken_channel_does_not_silence_the_others_and_is_notified_later(
    site: Site, hook: Hook, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, hook.port)
    hook.status = 500
    channels = Channels(
        site,
        {"type": "webhook", "conn_id": "cleantail_no_such"},
        {"type": "webhook", "conn_id": "cleantail_ops_hook"},
        {"type": "mail", "to": ["ops@lake.example"]},
        {"type": "file", "path": "alerts/all.jsonl"},
    )
    missed = ["webhook over connection cleantail_no_such", "webhook over connection cleantail_ops_hook"]
    assert channels.tell(lost()) == missed
    assert (len(mailbox.mails), (site.home / "alerts" / "all.jsonl").exists()) == (1, True)
    hook.status = 200
    assert channels.tell(lost()) == missed[:1]
    assert [posted["headline"] for _, posted in hook.posts] == ["evaluate failed"] * 2  # refused, then taken
    assert len(mailbox.mails) == 1


def test_an_error_during_a_notification_fails_no_task_and_its_text_is_not_logged(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    channels = Channels(site, {"type": "file", "path": "alerts/all.jsonl"})

    def wrong() -> list[Condition]:
        raise ValueError("a key " + "of a record")

    _platform, context = load_platform(site.config), {"ti": FakeTask()}
    assert notify_now(channels.topic, context, EarlyConditions(wrong)) == ["file alerts/all.jsonl"]  # type: ignore[arg-type]
    assert "in wrong" in caplog.text and "ValueError" in caplog.text
    assert "a key of a record" not in caplog.text


def test_a_channel_is_notified_only_of_the_events_in_its_yaml(site: Site) -> None:
    channels = Channels(
        site,
        {"type": "file", "path": "alerts/runs.jsonl", "events": ["run_failed"]},
        {"type": "file", "path": "alerts/checks.jsonl", "events": ["check_failed"]},
    )
    channels.tell(lost(), red=(failure(),))
    for name, event in (("runs", "run_failed"), ("checks", "check_failed")):
        (line,) = (site.home / "alerts" / f"{name}.jsonl").read_text().splitlines()
        assert json.loads(line)["event"] == event


class Died(BaseException):
    """Stands for a killed task. No code catches it."""


class Mortal(Channels):
    """A task that may die before or after each write of the book."""

    left: int | None = None

    def save(self, book: Book) -> None:
        if self.left == 0:
            raise Died
        self.left = None if self.left is None else self.left - 1
        super().save(book)


def last_messages(posts: list[tuple[str, Any]]) -> dict[str, set[str]]:
    """Return event -> open subjects of its last message. Empty if that message reports the end."""
    last = {posted["event"]: posted for _, posted in posts}
    assert all((posted["state"] == "open") is bool(posted["open"]) for posted in last.values())
    return {event: set(posted["open"]) for event, posted in last.items() if posted["open"]}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(1, 4))])
def test_on_a_random_walk_the_last_notification_on_a_real_server_is_true(
    site: Site, hook: Hook, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The server stores a message that it answers with 500, which its sender cannot notice. test_notifications.py has more
    walks, without a server."""
    walk = random.Random(seed)
    connect(monkeypatch, hook.port)
    channels = Mortal(site, {"type": "webhook", "conn_id": "cleantail_ops_hook"})
    everything = [(e, f"partition {p}", p) for e in Event if e is not Event.QUARANTINED for p in (0, 1)]
    wrong: set[tuple[Event, str, int]] = set()
    for _ in range(25):
        wrong ^= set(walk.sample(everything, walk.randint(0, 3)))
        found = [Condition(e, s, f"{s}: {e}", FakeTask.log_url, p) for e, s, p in sorted(wrong)]
        hook.status, channels.left = walk.choice([200, 500]), walk.choice([None, walk.randint(0, 5)])
        with contextlib.suppress(Died):
            channels.tell(*found)
        hook.status, channels.left = 200, None
        if walk.random() < 0.4:
            assert channels.tell(*found) == []
            true = {event: {s for e, s, _ in wrong if e is event} for event, _, _ in wrong}
            assert last_messages(hook.posts) == {event.value: subjects for event, subjects in true.items()}


def test_a_channel_listed_twice_in_the_yaml_is_notified_once_of_the_events_of_both_entries(site: Site) -> None:
    events = (["run_failed"], ["check_failed", "partition_quarantined"], ["partition_quarantined"])
    channels = Channels(site, *({"type": "file", "path": "alerts/all.jsonl", "events": e} for e in events))
    held = Condition(Event.QUARANTINED, "partition 4", "partition 4 is in quarantine", partition=4)
    channels.tell(lost(), held, red=(failure(),))
    lines = (site.home / "alerts" / "all.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["check_failed", "run_failed"]


def test_a_channel_that_fails_is_logged_without_its_secrets(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Recorder()
    monkeypatch.setattr(channels, "logger", log)
    connect(monkeypatch, free_port(), host="http://127.0.0.1/services/T0/hunter2", login="me", password="hunter3")
    Channels(site, {"type": "webhook", "conn_id": "cleantail_ops_hook"}).tell(lost())
    assert log.lines == ["alert by webhook over connection cleantail_ops_hook failed: ConnectionError"]


def test_the_secret_path_of_a_chat_webhook_is_masked_in_the_log_of_the_task(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk._shared.secrets_masker import redact

    connect(monkeypatch, free_port(), host="http://127.0.0.1/services/T0/hunter2")
    Channels(site, {"type": "slack", "conn_id": "cleantail_ops_hook"}).tell(lost())
    assert redact("Max retries exceeded with url: /services/T0/hunter2/x") == "Max retries exceeded with url: ***/x"


def test_observed_data_is_neither_a_template_nor_markup(
    site: Site, hook: Hook, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, hook.port)
    channels = [{"type": "webhook", "conn_id": "cleantail_ops_hook"}, {"type": "mail", "to": ["ops@lake.example"]}]
    Channels(site, *channels).tell(red=(failure(observed=HOSTILE),))
    assert hook.posts[0][1]["failures"][0]["observed"] == HOSTILE
    (part,) = [part for part in mailbox.mails[0].walk() if part.get_content_type() == "text/html"]
    body = part.get_payload(decode=True).decode()  # type: ignore[union-attr]
    assert "{{ 7 * 7 }}&lt;script&gt;" in body
    assert "<script>" not in body


MENTIONS = (
    "@all @channel <users/all> <!here> [log in](http://evil.example) ![x](http://evil.example/b.png) [a][b] a@b.c"
)


def mentions(text: str) -> list[str]:
    """Texts of other users that a chat would render as a mention or a link."""
    return re.findall(r"@\w+|<[!@#a-z][^>\s]*>|\]\(|\]\[", text)


@pytest.mark.parametrize("kind", ["webhook", "slack"])
def test_what_data_says_in_a_chat_mentions_nobody_and_links_nothing(
    site: Site, hook: Hook, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    connect(monkeypatch, hook.port)
    Channels(site, {"type": kind, "conn_id": "cleantail_ops_hook"}).tell(red=(failure(observed=MENTIONS),))
    ((_, posted),) = hook.posts
    assert len(mentions(MENTIONS)) == 8
    assert mentions(posted["text"]) == []
    assert "@\u200ball" in posted["text"]
    assert FakeTask.log_url in posted["text"]  # our own links are as they were
    if kind == "webhook":
        assert MENTIONS in posted["text"].replace("\u200b", "")
        assert posted["failures"][0]["observed"] == MENTIONS


def test_what_data_says_in_an_apprise_message_mentions_nobody(
    site: Site, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = {
        "conn_type": "apprise",
        "extra": {"config": [{"path": f"json://127.0.0.1:{hook.port}/x", "tag": "all"}]},
    }
    monkeypatch.setenv("AIRFLOW_CONN_APPRISE_DEFAULT", json.dumps(connection))
    assert Channels(site, {"type": "apprise"}).tell(red=(failure(observed=MENTIONS),)) == []
    assert mentions(hook.posts[0][1]["message"]) == []


def test_a_connection_that_is_not_for_alerts_is_not_used_even_where_the_topic_got_past_the_configuration(
    site: Site, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, hook.port)
    channels = Channels(site, {"type": "webhook", "conn_id": "cleantail_ops_hook"})
    (site.config / "defaults.yaml").write_text("platform: {alert_connections: [smtp_default]}\n")
    assert channels.tell(lost()) == ["webhook over connection cleantail_ops_hook"]
    assert hook.posts == []
    (site.config / "defaults.yaml").write_text("platform: {alert_connections: [cleantail_ops_*]}\n")
    assert channels.tell(lost()) == []
    assert len(hook.posts) == 1


def test_an_alert_file_is_its_owners_alone_and_no_link_is_followed_to_it(site: Site) -> None:
    channels = Channels(site, {"type": "file", "path": "alerts/orders.jsonl"})
    assert channels.tell(lost()) == []
    file = site.home / "alerts" / "orders.jsonl"
    assert file.stat().st_mode & 0o777 == 0o600
    file.unlink()
    (site.home / "passwords.json").write_text("{}")
    file.symlink_to(site.home / "passwords.json")
    assert channels.tell() == ["file alerts/orders.jsonl"]
    assert (site.home / "passwords.json").read_text() == "{}"


# ---- records


@pytest.fixture
def red_at_7(site: Site, tmp_path: Path) -> Any:
    """Notify a failed check at offset 7 of partition 4 through two files. One of them includes values."""
    files = [
        {"type": "file", "path": "alerts/plain.jsonl"},
        {"type": "file", "path": "alerts/quoting.jsonl", "values": True},
    ]
    channels = Channels(site, *files)
    table = OrdersTable(tmp_path).append((4, 7, 1, b"Ada", b"<b>4711</b>"), headers=[{"key": "h", "value": b"\xff"}])
    head = table.table.current_snapshot().snapshot_id
    table.table.manage_snapshots().create_branch(head, "ct_r_u0").commit()
    row = failure(offsets=[7], observed="1 of 1 record, at offset 7")

    def told(branch: bool = True) -> list[dict[str, Any]]:
        if not branch:
            table.append((4, 8, 1, b"b", b""))
            table.catalog.load_table("cleantail.orders").manage_snapshots().remove_branch("ct_r_u0").commit()
        assert channels.tell(red=(row,), head=head) == []
        return [json.loads((site.home / file["path"]).read_text()) for file in files]

    return told


def test_only_a_channel_that_asks_for_values_gets_what_the_records_hold(red_at_7: Any) -> None:
    plain, quoting = red_at_7()
    assert (plain["failures"][0]["offsets"], plain["failures"][0]["examples"]) == ([7], [])
    assert "Ada" not in json.dumps(plain) and "4711" not in json.dumps(plain)
    example = 'offset 7: key "Ada", value "<b>4711</b>", headers "h": 0xff'
    assert quoting["failures"][0]["examples"] == [example]
    assert example.replace("<", "<\u200b") in quoting["text"]  # no markup, wherever a channel shows it


def test_when_the_branch_has_gone_an_alert_says_the_offsets_alone(red_at_7: Any) -> None:
    for alert in red_at_7(branch=False):
        assert (alert["failures"][0]["offsets"], alert["failures"][0]["examples"]) == ([7], [])


def test_the_setting_values_does_not_change_the_name_of_a_channel(site: Site) -> None:
    """A channel that was notified of an incident gets no second message after a change of the YAML."""
    names = set()
    for asks in (False, True):
        site.topic("orders", alerts=[{"type": "file", "path": "alerts/a.jsonl", "values": asks}])
        names.add(find_topic("orders", site.config).alerts[0].name)
    assert len(names) == 1
