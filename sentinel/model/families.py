"""Every family and metric that sentinel measures, with its words.

This list is the one source: collectors fill these families, the store makes
a table of each, `/api/v1/metadata` and `rules check` read it.
"""

from __future__ import annotations

from sentinel.model.series import COUNTER, GAUGE, Family, Metric

_GPU = ("gpu", "uuid", "model", "mig")


def _family(name: str, labels: tuple[str, ...], **metrics: str) -> Family:
    """A family whose metrics ending in `_total` count and whose others gauge.

    `host_memory_total_bytes` and its like do not end in `_total`, so the rule
    of the name is the rule of the kind.
    """
    made = tuple(Metric(key, COUNTER if key.endswith("_total") else GAUGE, text) for key, text in metrics.items())
    return Family(name, labels, made)


GPU = _family(
    "gpu",
    _GPU,
    gpu_up="1 while the driver answers for this board, 0 when it is lost.",
    gpu_memory_used_bytes="Memory held by all processes and the driver, reserved memory included.",
    gpu_memory_total_bytes="Memory on the board.",
    gpu_memory_reserved_bytes="Memory that the driver keeps for itself.",
    gpu_utilization_ratio="Share of the last sample period with a kernel running.",
    gpu_memory_bandwidth_ratio="Share of the last sample period with device memory being read or written.",
    gpu_temperature_slowdown_celsius="Core temperature at which the hardware slows down.",
    gpu_power_watts="Power drawn by the whole board.",
    gpu_power_limit_watts="Power limit in force.",
    gpu_energy_joules_total="Energy used since the driver was loaded.",
    gpu_recovery_action="The driver's own advice: 0 none, 1 reset, 2 reboot, 3 drain, 4 drain and reset.",
    gpu_pcie_replays_total="PCIe packets sent again.",
    gpu_orphan_memory_bytes="Memory that no living process accounts for.",
)
GPU_TEMPERATURE = _family(
    "gpu_temperature", (*_GPU, "sensor"), gpu_temperature_celsius="Temperature, of core or memory."
)
GPU_CLOCK = _family("gpu_clock", (*_GPU, "domain"), gpu_clock_hertz="Clock now: sm, memory or graphics.")
GPU_THROTTLE = _family("gpu_throttle", (*_GPU, "reason"), gpu_throttled="1 while the board is slowed for this reason.")
GPU_ERRORS = _family("gpu_errors", (*_GPU, "kind"), gpu_ecc_errors_total="ECC errors: corrected or uncorrected.")
GPU_ROWS = _family("gpu_rows", (*_GPU, "kind"), gpu_remapped_rows="Memory rows remapped, by kind.")
GPU_PAGES = _family("gpu_pages", (*_GPU, "kind"), gpu_retired_pages="Memory pages retired, by kind.")
GPU_XID = _family("gpu_xid", (*_GPU, "xid"), gpu_xid_errors_total="Xid errors that the driver reported.")
GPU_NVLINK = _family("gpu_nvlink", (*_GPU, "link", "kind"), gpu_nvlink_errors_total="NVLink errors.")
GPU_PROCESS = _family("gpu_process", (*_GPU, "pid"), gpu_process_memory_bytes="Memory held by one process.")

HOST = _family(
    "host",
    (),
    host_memory_total_bytes="RAM of the machine.",
    host_memory_available_bytes="RAM that can be had without swapping.",
    host_swap_used_bytes="Swap in use.",
    host_cpu_utilization_ratio="Share of all processors' time spent busy since the sample before.",
    host_load1="Load average over one minute.",
    host_shm_used_ratio="Share of /dev/shm in use.",
    host_oom_kills_total="Processes killed by the kernel for want of memory since boot.",
    host_boot_time_seconds="When the machine was started (Unix time).",
    host_idle_cost_total="Money spent on this machine while no job was running.",
)
HOST_PRESSURE = _family(
    "host_pressure",
    ("resource", "kind", "window"),
    host_pressure_ratio="Share of time in which tasks waited for the resource (PSI).",
)
HOST_DISK = _family(
    "host_disk",
    ("mount",),
    host_disk_free_bytes="Bytes that an unprivileged writer can still use.",
    host_disk_total_bytes="Size of the file system.",
    host_inodes_free="Inodes free; absent where the file system has no fixed number.",
    host_disk_read_only="1 while the file system is mounted read-only.",
)
HOST_NETWORK = _family(
    "host_network",
    ("device",),
    host_network_receive_bytes_total="Bytes received.",
    host_network_transmit_bytes_total="Bytes sent.",
)

JOB = _family(
    "job",
    ("job",),
    job_up="1 while the job's processes live, 0 for 15 minutes after its end.",
    job_attempts_total="Attempts begun.",
    job_runtime_seconds="Since this attempt began.",
    job_timeout_seconds="Time limit of this attempt.",
    job_stall_limit_seconds="After so long without progress it counts as stalled, as learnt from its own pace.",
    job_processes="Processes in its tree.",
    job_cpu_seconds_total="Processor time used by its tree, its dead included.",
    job_memory_used_bytes="Use, measured as the constraint with the least headroom measures it.",
    job_memory_limit_bytes="The limit of that constraint: the one that kills.",
    job_memory_headroom_bytes="What is left under that limit.",
    job_memory_rss_bytes="Sum of resident sets. Shared pages count once per process: never compare it with a limit.",
    job_cgroup_oom_kills_total="OOM kills in its cgroup.",
    job_open_fds="Open files of the process nearest to its limit.",
    job_max_fds="That process's limit on open files.",
    job_zombies="Dead children that nobody reaped.",
    job_uninterruptible="Processes in D state.",
    job_read_bytes_total="Bytes read from storage.",
    job_written_bytes_total="Bytes written to storage.",
    job_last_output_timestamp_seconds="When its output last grew (Unix time).",
    job_last_progress_timestamp_seconds="When it last made progress: a step, a checkpoint, a finished subtask.",
    job_step="The step it last reported.",
    job_degrade_level="Acknowledged degrades not yet restored.",
)
JOB_STATE = _family("job_state", ("job", "state"), job_state="1 for the state the job is in, 0 for the others.")
JOB_GPU = _family(
    "job_gpu", ("job", "gpu", "uuid", "mig"), job_gpu_memory_bytes="GPU memory held by the job's processes."
)
JOB_REQUESTS = _family("job_requests", ("job", "request", "answer"), job_requests_total="Requests closed, by answer.")
CHECKPOINT = _family(
    "checkpoint",
    ("job",),
    checkpoint_last_timestamp_seconds="When the newest whole checkpoint was finished (Unix time).",
    checkpoint_last_size_bytes="Its size on disk.",
    checkpoint_last_step="Its step.",
    checkpoint_write_seconds="How long it took to write.",
    checkpoint_interval_target_seconds="How often one is wanted.",
    checkpoint_free_bytes="Least of file system and quota where the job writes.",
    checkpoint_free_inodes="Inodes left there.",
    checkpoint_next_size_bytes="How large the next one will be: as the newest, else as declared.",
    checkpoint_kept="How many whole ones are on disk.",
    checkpoint_look_seconds="How long the look under way, or the last, at where the job writes takes.",
)
CHECKPOINTS = _family("checkpoints", ("job", "state"), checkpoints_total="Checkpoints seen: complete or broken.")
LOG = _family("log", ("job", "kind"), log_events_total="Log records that matched, by kind.")
LOG_VOLUME = _family("log_volume", ("job",), log_lines_total="Lines read.", log_bytes_total="Bytes read.")
API = _family("api", ("job", "provider", "outcome"), api_requests_total="Calls, by outcome.")
API_TOKENS = _family("api_tokens", ("job", "provider", "direction"), api_tokens_total="Tokens, in or out.")
API_COST = _family("api_cost", ("job", "provider"), api_cost_total="Money spent on calls.")
API_LIMIT = _family(
    "api_limit", ("job", "provider", "limit"), api_limit_remaining_ratio="Share of a rate limit that is left."
)
MONEY = _family(
    "money",
    ("job",),
    job_cost_total="Money spent on the job.",
    job_wasted_cost_total="Money spent on work that was lost.",
    job_at_risk_seconds="Work since the last whole checkpoint.",
    job_at_risk_cost="What that work cost.",
)
SENTINEL = _family(
    "sentinel",
    (),
    sentinel_store_lag_seconds="Age of the oldest sample not yet in the store.",
    sentinel_cpu_seconds_total="Processor time used by sentinel and its children.",
    sentinel_memory_bytes="Resident memory of sentinel and its children.",
)
SENTINEL_COLLECTOR = _family(
    "sentinel_collector",
    ("collector",),
    sentinel_collector_up="1 when the collector's last pass came back in time.",
    sentinel_collector_seconds="How long its last pass took.",
)
SENTINEL_GROUP = _family("sentinel_group", ("group",), sentinel_rule_seconds="How long the group's last round took.")
SENTINEL_RULE = _family("sentinel_rule", ("rule",), sentinel_rule_up="1 when the rule's last evaluation had no error.")
SENTINEL_NOTIFY = _family(
    "sentinel_notify",
    ("receiver", "outcome"),
    sentinel_notifications_total="Messages, by receiver and outcome.",
)

FAMILIES: tuple[Family, ...] = (
    GPU,
    GPU_TEMPERATURE,
    GPU_CLOCK,
    GPU_THROTTLE,
    GPU_ERRORS,
    GPU_ROWS,
    GPU_PAGES,
    GPU_XID,
    GPU_NVLINK,
    GPU_PROCESS,
    HOST,
    HOST_PRESSURE,
    HOST_DISK,
    HOST_NETWORK,
    JOB,
    JOB_STATE,
    JOB_GPU,
    JOB_REQUESTS,
    CHECKPOINT,
    CHECKPOINTS,
    LOG,
    LOG_VOLUME,
    API,
    API_TOKENS,
    API_COST,
    API_LIMIT,
    MONEY,
    SENTINEL,
    SENTINEL_COLLECTOR,
    SENTINEL_GROUP,
    SENTINEL_RULE,
    SENTINEL_NOTIFY,
)

BY_NAME: dict[str, Family] = {family.name: family for family in FAMILIES}
OWNER: dict[str, Family] = {metric.name: family for family in FAMILIES for metric in family.metrics}
"""The family of each metric name."""
METRICS: dict[str, Metric] = {metric.name: metric for family in FAMILIES for metric in family.metrics}
