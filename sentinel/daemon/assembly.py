"""The only place where rooms meet: everything is made here and handed what it needs."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sentinel.actions.dispatcher import Dispatcher
from sentinel.clock import Clock
from sentinel.collectors.counters import Counters
from sentinel.collectors.gauges import Board
from sentinel.collectors.gpu_sources import DriverGpus, GpuSource, SimulatedGpus
from sentinel.collectors.jobcheckpoints import JobCheckpoints
from sentinel.collectors.joblogs import JobLogs
from sentinel.collectors.schedule import Schedule
from sentinel.collectors.standard import standard
from sentinel.daemon.accounts import Accounts
from sentinel.daemon.adoption import Adopter
from sentinel.daemon.bookkeeping import Books
from sentinel.daemon.core import About, DaemonCore, Rooms
from sentinel.daemon.deep import DeepReader
from sentinel.daemon.handwire import Habits, shipped_patterns
from sentinel.daemon.house import EVENT, House, journals
from sentinel.daemon.hub import Hub
from sentinel.daemon.jobcontrol import Jobs
from sentinel.daemon.lookout import Lookout
from sentinel.daemon.mail import Mail
from sentinel.daemon.pipeline import Pipeline
from sentinel.daemon.remotehand import RemoteHands
from sentinel.daemon.remotemail import Couriers, RemoteMail
from sentinel.daemon.rulebook import Rulebook, sees, untrusted
from sentinel.daemon.silences import SilenceBook
from sentinel.daemon.witness import Witness
from sentinel.errors import Problem, Problems
from sentinel.jobs.control import Control
from sentinel.jobs.hand import LocalHand
from sentinel.jobs.handover import Handover
from sentinel.jobs.monitor import Monitor, read_end
from sentinel.jobs.register import Register
from sentinel.jobs.trees import Forest
from sentinel.logs.classify import Classifier
from sentinel.logs.masking import clean, mask
from sentinel.logs.patterns import load as load_patterns
from sentinel.model.alerts import Alert
from sentinel.model.events import Event
from sentinel.model.jobs import Job, JobSpec, ProcessId
from sentinel.model.journal import JournalUnavailable
from sentinel.model.wire import encode
from sentinel.notify.courier import AppriseCourier
from sentinel.notify.notifier import Notifier
from sentinel.rules.engine import Engine
from sentinel.server.listen import Listener, TcpListener, UnixListener
from sentinel.store.journal import JournalFile
from sentinel.store.store import Store
from sentinel.store.window import Window

if TYPE_CHECKING:
    from sentinel.config import Settings

SIMULATED_GPUS = "SENTINEL_SIMULATED_GPUS"
"""Names a file of simulated boards, for demonstrations."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where this daemon lives, and for whom.

    Attributes:
        state: The state directory.
        socket: Of the API.
        system: Whether it serves every user of the machine.
        config: The configuration file named on the command line, or None.
    """

    state: Path
    socket: Path
    system: bool
    config: Path | None = None


def build(settings: Settings, place: Place, clock: Clock) -> House:
    """Make a daemon; nothing runs yet.

    Raises:
        SentinelError: Rules or patterns have mistakes, or the state cannot be used.
    """
    mine = os.getuid()
    rulebook = Rulebook(settings.rules, use_shipped=settings.shipped_rules, trusted_only=place.system)
    rules = rulebook.read()
    pattern_files = _pattern_files(settings.patterns, trusted_only=place.system)
    classifier = Classifier(load_patterns([*shipped_patterns(), *pattern_files]))

    # What keeps
    mail = Mail()
    window = Window(settings.store.window_s, settings.store.window_columns, tick_s=settings.sampling.interval_s)
    store = Store.open(place.state, settings.store, clock, mail.publish)
    journal = JournalFile(place.state / "journal.jsonl", clock)

    def keep(happened: Event) -> None:
        store.put_event(happened)
        if journals(happened):
            with contextlib.suppress(JournalUnavailable):  # whoever caused it has said so
                journal.append(EVENT, encode(happened), synced=False)

    hub = Hub(keep)

    # Jobs
    handover_path = place.socket.with_name("handover.sock")
    register = Register(
        journal,
        mail.publish,
        clock,
        directory=place.state,
        settings=settings.jobs,
        evidence=lambda job: witness.evidence(job),  # noqa: PLW0108 - it is made further down
    )
    handover = Handover(handover_path, register, settings.jobs, shared=place.system)
    forest = Forest()
    monitor = Monitor(
        register,
        forest,
        clock,
        settings.jobs,
        handover,
        left=lambda job: read_end(job) if job.uid == mine else hands.left(job),
        awaited=lambda job: hands.is_awaited(job),  # noqa: PLW0108 - it is made below
    )
    own_hand = LocalHand(settings.jobs)
    control = Control(
        register, forest, lambda job: own_hand if job.uid == mine else hands.of(job), settings.jobs, clock
    )

    # Measuring
    counters, board = Counters(tick_s=settings.sampling.interval_s), Board()
    targets = mail.targets
    logs = JobLogs(
        lambda: [job for job in targets() if job.alive and job.uid == mine],
        classifier,
        counters,
        mail.log_events,
        place.state / "tails.json",
        clock.now,
    )
    own_checkpoints = JobCheckpoints(
        lambda: [job for job in targets() if job.alive and job.uid == mine], counters, mail.checkpoint, clock.now
    )
    checkpoints = Lookout(own_checkpoints, counters, mail.checkpoint, clock.now)
    remote_mail = RemoteMail(settings.notify.timeout_s, clock.monotonic)
    hands = RemoteHands(
        logs,
        checkpoints,
        remote_mail,
        journal,
        clock=clock,
        uid=mine,
        habits=Habits(
            tuple(str(path) for path in pattern_files),
            settings.jobs.ack_poll_s,
            settings.jobs.exec_limit_s,
            settings.notify.timeout_s,
            settings.jobs.log_limit_bytes,
        ),
        find=register.find,
        waiting_for=lambda job_id: notifier.waiting_for(job_id),  # noqa: PLW0108 - it is made below
    )
    jobs = Jobs(register, control, window, checkpoints.newest, clock)
    gpus = _gpus(settings)
    measuring = standard(targets, gpus, board.facts, settings.sampling)
    schedule = Schedule(
        [*measuring.collectors, checkpoints, board, counters],
        mail.batch,
        mail.publish,
        clock,
        settings.sampling,
        jobs=measuring.jobs,
    )
    for collector in (*measuring.collectors, checkpoints, board, counters):
        for family in collector.families:
            window.set_tick(family.name, collector.interval_s or settings.sampling.interval_s)

    # Judging, acting, telling
    deep = DeepReader(window, store, mail.answered, budget_s=settings.store.query_s)
    engine = Engine(
        window,
        rules,
        clock=clock,
        append=mail.recorded,
        sees=lambda rule: sees(rule, register.living()),
        deep=deep,
    )

    def owner(job: str | None) -> int | None:
        found = register.find(job) if job else None
        return found.uid if found else None

    silences = SilenceBook(journal, clock.now, lambda alert: owner(alert.job))
    dispatcher = Dispatcher(
        jobs, journal, mail.publish, clock=clock, settings=settings.actions, silences=silences, clean=clean
    )

    def jobs_of(alert: Alert) -> Sequence[Job]:
        return dispatcher.jobs_of(alert)

    notifier = Notifier(
        journal,
        mail.publish,
        Couriers(
            AppriseCourier(timeout_s=settings.notify.timeout_s, idle_s=settings.notify.idle_s),
            remote_mail,
            hands.serves,
        ),
        clock=clock,
        settings=settings.notify,
        find=register.find,
        jobs_of=jobs_of,
        requests_of=dispatcher.requests_of,
        requests_to=dispatcher.requests,
        newest=checkpoints.newest,
        silences=silences,
        mask=mask,
        uid=mine,
        speaks_for=lambda job: job.uid == mine or hands.serves(job.id),
    )
    pipeline = Pipeline(
        keep=(window.append, store.put),
        engine=engine,
        write=journal.append,
        hub=hub,
        act=dispatcher.submit,
        tell=notifier.on_transition,
        owner=owner,
        clock=clock,
    )
    books = Books(counters, board, logs, checkpoints.newest)
    witness = Witness(
        window,
        events=logs.last_events,
        oom_kills=measuring.jobs.oom_kills,
        newest=checkpoints.newest,
        requests=dispatcher.requests,
        clock=clock,
    )

    def adopt(spec: JobSpec, uid: int, name: str, process: ProcessId, pgid: int) -> None:
        register.register(spec, uid=uid, owner=name, adopt=process, pgid=pgid)

    rooms = Rooms(
        clock, hub, window, store, engine, register, monitor, dispatcher, notifier, silences, logs, checkpoints, hands,
        witness, Accounts(store), books,
    )  # fmt: skip
    house = House(
        place=place,
        settings=settings,
        rooms=rooms,
        journal=journal,
        mail=mail,
        pipeline=pipeline,
        schedule=schedule,
        sampler=measuring.jobs,
        counters=counters,
        books=books,
        rulebook=rulebook,
        deep=deep,
        handover=handover,
        gpus=gpus,
        adopter=Adopter(settings.adoptions, register.living, adopt),
        listeners=_listeners(settings, place),
    )
    about = About(settings.mode, place.system, clock.now(), str(handover_path))
    house.core = DaemonCore(
        about, rooms, health=house.health, write=journal.append, reload=house.reload, add_rules=house.add_rules
    )
    return house


def _gpus(settings: Settings) -> GpuSource:
    file = os.environ.get(SIMULATED_GPUS)
    return SimulatedGpus(file) if file else DriverGpus(settings.sampling.gpu_deadline_s)


def _pattern_files(extra: Sequence[str], *, trusted_only: bool) -> list[Path]:
    found: list[Path] = []
    problems: list[Problem] = []
    for pattern in extra:
        for path in sorted(glob.glob(os.path.expanduser(pattern))):
            if trusted_only and (reason := untrusted(path)):
                problems.append(Problem(path, 0, 0, reason, "chown root and chmod go-w it"))
            found.append(Path(path))
    if problems:
        raise Problems(problems)
    return found


def _listeners(settings: Settings, place: Place) -> list[Listener]:
    found: list[Listener] = [UnixListener(place.socket, shared=place.system)]
    if settings.api.listen:
        found.append(TcpListener.parse(settings.api.listen))
    return found
