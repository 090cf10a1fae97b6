"""The last message to a channel is true: by the table of states, and on random walks."""

import random
from dataclasses import dataclass, field, replace

import pytest

from cleantail.config.alert_channels import Event
from cleantail.watch import incidents as rule
from cleantail.watch.incidents import (
    Book,
    Condition,
    Incident,
    IncidentState,
    LastMessage,
    Listener,
    Observation,
    after_sending,
    before_sending,
    book_as_json,
    due_notifications,
    observed,
    parse_book,
    without_answer,
    without_settled,
)

RUN = Condition(Event.RUN_FAILED, "task compact", "compact failed", "link", cause="a")
OTHER_CAUSE, UNKNOWN_CAUSE = replace(RUN, cause="b"), replace(RUN, cause="")
MAIL, CHAT = Listener("mail", tuple(Event)), Listener("chat", tuple(Event))


def check(partition, since_ms):
    subject, since = f"partition {partition}", f"since {since_ms}"
    return Condition(Event.CHECK_FAILED, subject, "check failed", "", partition, occurrence=since)


def held(partition, since_ms):
    return replace(check(partition, since_ms), event=Event.QUARANTINED, text="in quarantine")


def everything(_):
    return True


def nothing(_):
    return False


class Play:
    """Consecutive runs, and the messages to channels: (event, state, open subjects, subjects that are over)."""

    def __init__(self, *listeners):
        self.listeners, self.book, self.now_ms = listeners or (MAIL,), Book(), 0

    def look(self, *conditions, known=everything, whole=True):
        self.now_ms += 1
        run = (self.now_ms, self.now_ms, f"run {self.now_ms}")
        self.book = observed(self.book, Observation(conditions, known, *run, whole))
        return self

    def tell(self, *listeners, answers=True):
        heard = []
        for listener in listeners or self.listeners:
            for notification in due_notifications(self.book, listener):
                self.book = before_sending(self.book, listener, notification, "me")
                heard.append(words_of(notification))
                step = after_sending if answers else without_answer
                self.book = step(self.book, listener, notification, "me")
        self.book = without_settled(self.book, self.listeners)
        return heard


def words_of(notification):
    begun, ended, still = (
        [i.condition.subject for i in part] for part in (notification.begun, notification.ended, notification.still)
    )
    return notification.event.value, notification.said.value, begun + still, ended


# ---- the table of the module's docstring

COLUMNS = {
    "it begins or lasts": check(0, 7),
    "it begins again": check(0, 8),
    "its cause changes": replace(check(0, 7), cause="another"),
    "it is over": None,
}


def cells():
    lines = [line.strip("| ").split(" | ") for line in rule.__doc__.splitlines() if line.startswith("|")]
    head, _, *rows = lines
    return [(row[0], name, *cell.split(", ")) for row in rows for name, cell in zip(head[1:], row[1:], strict=True)]


def last_message(listener, book):
    incident = book.incidents.get((Event.CHECK_FAILED, "partition 0"))
    word = incident.last_messages.get(listener.name) if incident else None
    return word.said.value if word else "none"


@pytest.mark.parametrize(("state", "column", "message", "after"), [c for c in cells() if c[1] in COLUMNS])
def test_the_table_of_states_is_what_the_rule_does(state, column, message, after):
    last_messages = (
        {} if state == "none" else {"mail": LastMessage(IncidentState(state), "since 7" if state == "open" else "")}
    )
    known = replace(check(0, 7), seen_ms=1)
    play = Play()
    over_ms = 1 if state == "over" else None
    play.book = Book({known.key: Incident(known, 1, over_ms, last_messages)})
    play.look(*([COLUMNS[column]] if COLUMNS[column] else []))
    [heard] = [said for _, said, *_ in play.tell()] or ["-"]
    word = last_message(MAIL, play.book)
    if (Event.CHECK_FAILED, "partition 0") not in play.book.incidents:  # forgotten: all channels got the end
        word = "over" if heard == "over" else state
    assert (heard, word) == (message, after)


@pytest.mark.parametrize("state", ["none", "open", "over", "unsure"])
def test_without_an_answer_every_state_is_unsure(state):
    assert [c[2:] for c in cells() if c[0] == state and c[1] not in COLUMNS] == [("-", "unsure")]
    occurrence = "since 6" if state == "open" else ""  # so that a message is due
    last_messages = {} if state == "none" else {"mail": LastMessage(IncidentState(state), occurrence)}
    play = Play()
    play.book = Book({check(0, 7).key: Incident(check(0, 7), 1, None, last_messages)})
    assert [said for _, said, *_ in play.tell(answers=False)] == ["open"]
    assert last_message(MAIL, play.book) == "unsure"


# ---- once


@pytest.mark.parametrize(
    ("steps", "heard"),
    [
        pytest.param([([RUN], True)] * 3, [["open"], [], []], id="however long it lasts"),
        pytest.param([([RUN], True), ([], True), ([], True)], [["open"], ["over"], []], id="its end once too"),
        pytest.param([([RUN], False), ([RUN], True), ([RUN], True)], [["open"], ["open"], []], id="no answer: again"),
        pytest.param([([RUN], False), ([], True), ([], True)], [["open"], ["over"], []], id="it may have been heard"),
        pytest.param([([RUN], True), ([], True), ([RUN], True)], [["open"], ["over"], ["open"]], id="a new one"),
        pytest.param(
            [([RUN], True), ([], False), ([RUN], True), ([RUN], True)],
            [["open"], ["over"], ["open"], []],
            id="back before its end was answered: the end may have been heard",
        ),
        pytest.param([([], True)], [[]], id="nothing"),
        pytest.param(
            [([RUN], True), ([OTHER_CAUSE], True), ([OTHER_CAUSE], True), ([UNKNOWN_CAUSE], True), ([RUN], True)],
            [["open"], ["open"], [], [], ["open"]],
            id="a new cause is told once, and a look that does not know the cause tells nothing",
        ),
        pytest.param(
            [([RUN], True), ([OTHER_CAUSE], False), ([OTHER_CAUSE], True), ([], True)],
            [["open"], ["open"], ["open"], ["over"]],
            id="a new cause without an answer: again",
        ),
    ],
)
def test_a_channel_is_notified_once_of_the_begin_and_once_of_the_end(steps, heard):
    play = Play()
    found = [[said for _, said, *_ in play.look(*conditions).tell(answers=answers)] for conditions, answers in steps]
    assert found == heard


def test_a_released_partition_that_fails_again_is_not_reported_as_over_before_it_passes():
    """The failed check of the next run is notified at once. The first quarantine is no longer a separate incident."""
    play = Play(Listener("pager", (Event.CHECK_FAILED,)))
    assert play.look(check(0, 1450), known=nothing, whole=False).tell() == [
        ("check_failed", "open", ["partition 0"], [])
    ]
    assert play.look(check(0, 1450), held(0, 1450)).tell() == []
    again = play.look(check(0, 1500), known=nothing, whole=False).tell()  # released meanwhile, not observed yet
    assert again == [("check_failed", "open", ["partition 0"], [])]
    assert play.look(check(0, 1500), held(0, 1500)).tell() == []
    assert play.look().tell() == [("check_failed", "over", [], ["partition 0"])]
    assert (play.look().tell(), play.book.incidents) == ([], {})


def test_a_release_that_a_run_has_seen_is_the_end_and_the_next_red_check_a_beginning():
    play = Play()
    steps = [[check(0, 1), held(0, 1)], [], [check(0, 3)], [check(0, 3), held(0, 3)], []]
    heard = [[said for _, said, *_ in play.look(*conditions).tell()] for conditions in steps]
    assert heard == [["open"], ["over"], ["open"], [], ["over"]]


def test_as_long_as_one_partition_is_held_back_the_message_is_open_and_names_it():
    play = Play()
    play.look(check(0, 1), check(1, 1)).tell()
    assert play.look(check(1, 1)).tell() == [("check_failed", "open", ["partition 1"], ["partition 0"])]
    assert play.look().tell() == [("check_failed", "over", [], ["partition 1"])]


def test_an_unanswered_message_makes_all_that_it_was_about_unsure():
    play = Play()
    play.look(check(0, 1), check(1, 1)).tell()
    play.look(check(1, 1)).tell(answers=False)
    assert play.tell() == [("check_failed", "open", ["partition 1"], ["partition 0"])]


def test_ends_are_notified_before_begins():
    play = Play()
    play.look(RUN).tell()
    assert [said for _, said, *_ in play.look(check(0, 1)).tell()] == ["over", "open"]


def test_one_channel_that_does_not_answer_does_not_make_the_others_hear_twice():
    play = Play(MAIL, CHAT)
    play.look(RUN)
    play.tell(MAIL)
    play.tell(CHAT, answers=False)
    assert (play.look(RUN).tell(MAIL), len(play.tell(CHAT))) == ([], 1)


def test_a_channel_that_is_new_hears_of_what_is_open_and_not_of_what_is_over():
    play = Play(MAIL, CHAT)
    play.look(RUN).tell(MAIL)
    assert [said for _, said, *_ in play.tell(CHAT)] == ["open"]
    play.look()
    assert play.tell(Listener("new", tuple(Event))) == []


def test_a_channel_that_is_gone_keeps_nothing_open():
    play = Play(CHAT)
    play.look(RUN).tell()
    assert without_settled(play.book, [MAIL]).incidents[RUN.key].last_messages == {}
    assert without_settled(play.book, [Listener("chat", (Event.ERASURE,))]).incidents[RUN.key].last_messages == {}
    assert without_settled(play.look().book, [MAIL]).incidents == {}
    assert set(without_settled(play.book, [CHAT]).incidents) == {RUN.key}


def test_a_channel_hears_only_of_its_events():
    play = Play(Listener("mail", (Event.RUN_FAILED,)))
    assert [event for event, *_ in play.look(RUN, held(0, 1)).tell()] == ["run_failed"]


def test_two_tasks_that_notify_a_channel_at_once_leave_its_state_unsure():
    """The order of the two messages is unknown. That holds too if one task has already forgotten an ended incident."""
    book = Play().look(RUN).book
    [notification] = due_notifications(book, MAIL)
    book = before_sending(before_sending(book, MAIL, notification, "me"), MAIL, notification, "other")
    book_after_one = after_sending(book, MAIL, notification, "me")
    assert book_after_one.incidents[RUN.key].last_messages == {
        "mail": LastMessage(IncidentState.UNSURE, by="other", beside=True)
    }
    book_after_both = after_sending(book_after_one, MAIL, notification, "other")
    assert book_after_both.incidents[RUN.key].last_messages == {"mail": LastMessage(IncidentState.UNSURE)}
    forgotten = after_sending(replace(book, incidents={}), MAIL, notification, "me")
    assert forgotten.incidents[RUN.key].last_messages == {"mail": LastMessage(IncidentState.UNSURE)}


def test_an_unanswered_message_during_that_of_another_task_leaves_both_unsure():
    """Of two tasks, the second sends its message first. The first task's message arrives later. Only the second task gets
    an answer."""
    play = Play().look(check(0, 7))
    [notification] = due_notifications(play.book, MAIL)
    book = before_sending(play.book, MAIL, notification, "first")
    book = before_sending(book, MAIL, notification, "second")
    book = after_sending(book, MAIL, notification, "second")
    book = without_answer(book, MAIL, notification, "first")
    assert book.incidents[check(0, 7).key].last_messages == {"mail": LastMessage(IncidentState.UNSURE)}
    play.book = book
    assert [said for _, said, *_ in play.tell()] == ["open"]
    assert play.tell() == []


# ---- a failed check and its quarantine send one message


def test_a_channel_notified_of_a_failed_check_is_not_notified_of_its_quarantine():
    play = Play()
    steps = [([check(0, 1)], nothing), ([check(0, 1), held(0, 1)], everything), ([], everything)]
    heard = [[(e, s) for e, s, *_ in play.look(*found, known=known).tell()] for found, known in steps]
    assert heard == [[("check_failed", "open")], [], [("check_failed", "over")]]
    assert play.book.incidents == {}


def test_a_quarantine_whose_end_may_have_been_heard_is_told_next_to_its_check():
    play = Play()
    play.look(held(0, 1)).tell()
    play.look().tell(answers=False)
    heard = [(event, said) for event, said, *_ in play.look(check(0, 3), held(0, 3)).tell()]
    assert heard == [("check_failed", "open"), ("partition_quarantined", "open")]


def test_a_channel_for_quarantines_alone_is_notified_of_each_new_quarantine():
    play = Play(Listener("mail", (Event.QUARANTINED,)))
    steps = [[check(0, 1), held(0, 1)], [held(0, 2)], []]
    assert [[s for _, s, *_ in play.look(*found).tell()] for found in steps] == [["open"], ["open"], ["over"]]


def test_a_failed_check_after_a_rejection_is_notified_and_the_partition_not_reported_as_released():
    play = Play()
    steps = [[held(0, 1)], [held(0, 1), check(0, 2)], [check(0, 2), held(0, 2)], []]
    heard = [[(e, s) for e, s, *_ in play.look(*found).tell()] for found in steps]
    over = [("check_failed", "over"), ("partition_quarantined", "over")]
    assert heard == [[("partition_quarantined", "open")], [("check_failed", "open")], [], over]


def test_the_end_of_a_rejection_does_not_report_a_failed_partition_as_released():
    play = Play()
    play.look(held(0, 1)).tell()
    found = play.look(check(1, 2), held(1, 2)).tell()
    assert ("partition_quarantined", "open", ["partition 1"], ["partition 0"]) in found


# ---- random walks

SUBJECTS = [f"partition {n}" for n in range(3)]
OTHERS = [e for e in Event if e not in (Event.CHECK_FAILED, Event.QUARANTINED)]
EVENTS = [(Event.CHECK_FAILED,), (Event.QUARANTINED,), tuple(OTHERS), tuple(Event)]


@dataclass
class Pager:
    """The content of a channel: the last message of each event, answered or not."""

    listener: Listener
    last: dict = field(default_factory=dict)


class Walk:
    """Random events of a topic, and the tasks that observe and notify. Any task may die at any point."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.book, self.clock, self.messages = Book(), 0, 0
        self.quarantine, self.red, self.seen = {}, {}, set()
        self.wrong = {}  # not a set, because the order must depend on the seed only
        self.pagers = [self.pager(n) for n in range(2)]

    def pager(self, n):
        return Pager(Listener(f"channel {n}", self.random.choice(EVENTS)))

    def tick(self):
        self.clock += 1
        return self.clock

    # what happens

    def happen(self):
        subject, event = self.random.choice(SUBJECTS), self.random.choice(OTHERS)
        self.random.choice(
            [
                lambda: self.check_is_red(subject),
                lambda: self.quarantine.setdefault(subject, (self.tick(), False)),  # a person rejects
                lambda: (self.quarantine.pop(subject, 0), self.red.pop(subject, 0)),  # green
                lambda: self.release(subject),
                lambda: self.wrong.setdefault((event, subject), ""),
                lambda: self.wrong.pop((event, subject), ""),
            ]
        )()
        self.seen &= self.truth.keys()

    def check_is_red(self, subject):
        """A partition that a check has already blocked keeps the time of its first failed check."""
        held = self.quarantine.get(subject, (0, False))
        self.red.setdefault(subject, held if held[1] else (self.tick(), True))

    def release(self, subject):
        """Release the partition. A check that fails now stays failed, and no task has observed it as a new check yet."""
        self.quarantine.pop(subject, 0)
        self.seen.discard((Event.CHECK_FAILED, subject))

    def publish(self):
        """Store the quarantines of failed checks in the table."""
        for subject in list(self.red):
            since, by_check = self.red.pop(subject)
            held_by_check = self.quarantine.get(subject, (0, False))[1]
            if not held_by_check:
                self.quarantine[subject] = (since, by_check)

    @property
    def table(self):
        found = {(Event.QUARANTINED, s): f"since {since}" for s, (since, _) in self.quarantine.items()}
        return found | {(Event.CHECK_FAILED, s): f"since {t}" for s, (t, check) in self.quarantine.items() if check}

    @property
    def truth(self):
        """Key -> occurrence of each present problem."""
        red = {(Event.CHECK_FAILED, s): f"since {since}" for s, (since, _) in self.red.items()}
        return self.table | red | self.wrong

    # observations

    def whole_look(self):
        """The task `alert`, after `publish`."""
        self.publish()
        return self.look(self.truth, everything, self.tick(), whole=True)

    def early_look(self):
        """A task in the middle of a run observes some problems, and cannot end incidents."""
        part = {key: occurrence for key, occurrence in self.truth.items() if self.random.random() < 0.5}
        return self.look(part, nothing, self.tick())

    def blind_look(self):
        """The table cannot be read."""
        return self.look(self.wrong, lambda c: c.event in OTHERS, self.tick(), whole=True)

    def old_look(self):
        """The task `alert` of an earlier run, cleared by a user: it reads the present table, and its own tasks succeeded."""
        return self.look(self.table, everything, 0, run_id=f"earlier {self.tick()}")

    def look(self, found, known, began_ms, whole=False, run_id=None):
        self.seen |= set(found)
        conditions = tuple(Condition(event, s, "x", occurrence=o) for (event, s), o in found.items())
        return Observation(conditions, known, began_ms, began_ms, run_id or f"run {began_ms}", whole)

    # notifications

    def change(self, change):
        self.book = change(self.book)

    def task(self, look, answers):
        """The steps of a task. At each yield it may die, or another task may continue."""
        self.change(lambda book: observed(book, look))
        listeners = [pager.listener for pager in self.pagers]
        for pager in list(self.pagers):
            yield
            for notification in due_notifications(self.book, pager.listener):
                by = str(self.tick())
                self.change(lambda book, p=pager, t=notification, by=by: before_sending(book, p.listener, t, by))
                yield
                if not self.delivered(pager, notification, answers):
                    yield
                    self.change(lambda book, p=pager, t=notification, by=by: without_answer(book, p.listener, t, by))
                    break
                yield
                self.change(lambda book, p=pager, t=notification, by=by: after_sending(book, p.listener, t, by))
                yield
        self.change(lambda book: parse_book(book_as_json(without_settled(book, listeners))))

    def delivered(self, pager, notification, answers):
        """Deliver a message. It may arrive even if the channel does not answer."""
        arrives, is_answered = (True, True) if answers else self.random.choice([(1, 1), (1, 0), (0, 0)])
        if arrives:
            self.messages += 1
            subjects = {i.condition.subject: i.condition.occurrence for i in (*notification.begun, *notification.still)}
            pager.last[notification.event] = (notification.said, subjects)
        return is_answered

    def run_to_the_end(self, task):
        for _ in task:
            pass

    # invariants

    def assert_nothing_is_told_as_over_that_was_seen(self):
        for pager in self.pagers:
            for event, (said, subjects) in pager.last.items():
                seen = {s for e, s in self.seen if e is event and not self.stands_as_check(pager, e, s)}
                assert said is IncidentState.OPEN or not seen, (pager.listener.name, event, seen)
                assert seen <= set(subjects) or not self.is_settled(pager, event)

    def is_settled(self, pager, event):
        """Return whether no message about the event is due for the channel."""
        return event not in {notification.event for notification in due_notifications(self.book, pager.listener)}

    def is_told_as_check(self, pager, event, subject):
        return (
            event is Event.QUARANTINED
            and Event.CHECK_FAILED in pager.listener.events
            and (Event.CHECK_FAILED, subject) in self.truth
        )

    def stands_as_check(self, pager, event, subject):
        """Return whether the partition is notified as a failed check: no task has observed yet that the check passes."""
        check = self.book.incidents.get((Event.CHECK_FAILED, subject))
        hears_checks = event is Event.QUARANTINED and Event.CHECK_FAILED in pager.listener.events
        return hears_checks and check is not None and check.is_open

    def assert_the_last_word_is_the_truth(self):
        for pager in self.pagers:
            for event in pager.listener.events:
                said, told = pager.last.get(event, (IncidentState.OVER, {}))
                true = {s: o for (e, s), o in self.truth.items() if e is event}
                assert said is (IncidentState.OPEN if told else IncidentState.OVER)
                assert set(told) <= set(true), (pager.listener, event)
                for subject, occurrence in true.items():
                    hidden = self.is_told_as_check(pager, event, subject)
                    assert hidden or told.get(subject) == occurrence, (pager.listener, event, subject)


@pytest.fixture(params=[range(20), pytest.param(range(20, 40), marks=pytest.mark.deep)], ids=["walks", "more walks"])
def seeds(request):
    """Twenty walks detect each mutant of the rule that forty detect. Ten would miss one."""
    return request.param


@pytest.mark.parametrize("dies", [False, True], ids=["all live", "tasks die"])
def test_on_a_random_walk_the_last_notification_is_true_once_the_channel_has_answered(dies, seeds):
    messages = 0
    for seed in seeds:
        walk = Walk(seed)
        for n in range(80):
            for _ in range(walk.random.randint(0, 3)):
                walk.happen()
            look = walk.random.choice([walk.whole_look, walk.early_look, walk.blind_look, walk.old_look])()
            task = walk.task(look, answers=walk.random.random() < 0.5)
            if dies and walk.random.random() < 0.4:
                for _ in range(walk.random.randint(0, 6)):
                    next(task, None)
            else:
                walk.run_to_the_end(task)
            if walk.random.random() < 0.03:
                walk.pagers[walk.random.randrange(2)] = walk.pager(f"{n} of {seed}")
            if walk.random.random() < 0.3:
                walk.run_to_the_end(walk.task(walk.whole_look(), answers=True))
                walk.assert_the_last_word_is_the_truth()
        messages += walk.messages
    assert messages > 50 * len(seeds)


def test_on_a_random_walk_no_incident_that_was_seen_is_reported_as_over(seeds):
    for seed in seeds:
        walk = Walk(seed)
        for _ in range(80):
            walk.happen()
            look = walk.random.choice([walk.whole_look, walk.early_look, walk.old_look])()
            walk.run_to_the_end(walk.task(look, answers=True))
            walk.assert_nothing_is_told_as_over_that_was_seen()


def test_after_two_tasks_at_once_the_next_one_makes_the_last_notification_true(seeds):
    """Without the lock, as on machines that share no disk: each reads and writes the book between the other's steps."""
    for seed in seeds:
        walk = Walk(seed)
        for _ in range(40):
            tasks = []
            for look in (walk.whole_look, walk.random.choice([walk.early_look, walk.old_look, walk.whole_look])):
                for _ in range(walk.random.randint(0, 2)):
                    walk.happen()
                tasks.append(walk.task(look(), answers=walk.random.random() < 0.5))
            while tasks:
                task = walk.random.choice(tasks)
                if next(task, "ended") == "ended" or walk.random.random() < 0.05:
                    tasks.remove(task)
            walk.run_to_the_end(walk.task(walk.whole_look(), answers=True))
            walk.assert_the_last_word_is_the_truth()


def test_a_walk_in_which_all_answer_says_nothing_twice(seeds):
    for seed in seeds:
        walk = Walk(seed)
        for _ in range(40):
            walk.happen()
            walk.run_to_the_end(walk.task(walk.whole_look(), answers=True))
            before = walk.messages
            walk.run_to_the_end(walk.task(walk.whole_look(), answers=True))
            assert walk.messages == before
