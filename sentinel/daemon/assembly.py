"""The only place where rooms meet: everything is made here and handed what it needs."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.actions.dispatcher import Dispatcher
from sentinel.clock import Clock
from sentinel.collectors.counters import Counters
from sentinel.collectors.gauges import Board
from sentinel.collectors.gpu_sources import DriverGpus, GpuSource, SimulatedGpus
from sentinel.collectors.jobcheckpoints import JobCheckpoints
from sentinel.collectors.joblogs import JobLogs
from sentinel.collectors.schedule import Schedule
from sentinel.collectors.standard import standard
from sentinel.daemon.bookkeeping import Books
from sentinel.daemon.core import About, DaemonCore, Rooms
from sentinel.daemon.hub import Hub
from sentinel.daemon.jobcontrol import Jobs
from sentinel.daemon.pipeline import Pipeline
from sentinel.daemon.rulebook import Rulebook, sees
from sentinel.daemon.silences import SilenceBook
from sentinel.daemon.storms import LogStorms
from sentinel.exporters.prometheus import exposition
from sentinel.jobs.control import Control
from sentinel.jobs.failures import Evidence
from sentinel.jobs.hand import LocalHand
from sentinel.jobs.handover import Handover
from sentinel.jobs.monitor import Monitor
from sentinel.jobs.register import Register
from sentinel.jobs.trees import Forest
from sentinel.logs.classify import Classifier
from sentinel.logs.masking import clean, mask
from sentinel.logs.patterns import load as load_patterns
from sentinel.model.alerts import AlertState, Reason, Transition
from sentinel.model.checkpoints import Checkpoint, CheckpointState
from sentinel.model.events import Event, Severity, event
from sentinel.model.families import CHECKPOINT, HOST, JOB
from sentinel.model.jobs import Job
from sentinel.model.logs import LogEvent
from sentinel.model.series import Batch
from sentinel.notify.notifier import Notifier
from sentinel.paths import shipped
from sentinel.rules.engine import Engine
from sentinel.rules.ruleset import RuleSet
from sentinel.server.app import Server, serve
from sentinel.server.listen import Listener, TcpListener, UnixListener
from sentinel.store.database import Store
from sentinel.store.journal import JournalFile
from sentinel.store.window import Window

if TYPE_CHECKING:
    from sentinel.config import Settings
    from sentinel.daemon.lifecycle import Options

_log = logging.getLogger(__name__)

LOOK_AT_LOGS_S = 0.2
_MEMORY = tuple(metric.name for metric in JOB.metrics if metric.name.startswith("job_memory"))
