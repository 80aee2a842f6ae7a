"""What `config init` writes: every key with its default, explained. As it stands it changes nothing."""

SAMPLE = """\
# sentinel's configuration. Every line is optional: what is commented out is the default,
# or an example. `sentinel config check` says what is wrong with this file, `sentinel config
# show` what is in force. ${NAME} is taken from the daemon's environment; a secret may also
# stand in a file of its own: file:/etc/sentinel/token. $$ is a dollar sign.

# act: ask jobs and tell people. observe: do everything but act, and say what would have been done.
mode: act

sampling:
  interval: 2s          # how often to measure; a job in danger is measured more often

# Rule files in Prometheus's format, added to those that come with sentinel. A rule of the
# same name replaces the shipped one.
# rules: ["/etc/sentinel/rules/*.yaml"]
# shipped_rules: true

# Patterns that say what a line of a log means, added to those that come with sentinel.
# patterns: ["/etc/sentinel/patterns/*.yaml"]

# Processes that become jobs without `sentinel run`.
# jobs:
#   - name: llama-ft
#     match: {cmdline: "train\\\\.py", user: alice}    # a regular expression; either may be left out
#     logs: ["/data/llama/logs/*.log"]
#     checkpoints: [{path: /data/llama/ckpt, interval: 30m}]
#     requests: {checkpoint: "signal:USR1", degrade: "signal:USR2"}
#     memory_limit: 64GiB
#     cost_per_hour: 19.92

# Who hears of alerts: addresses as apprise writes them (https://github.com/caronc/apprise).
# The end of a job is told to the addresses given by `sentinel run --notify`, without any of this.
# notify:
#   receivers:
#     - {name: oncall, urls: ["${SLACK_URL}", "mailtos://user:password@example.com"]}
#   route: {receiver: oncall, group_by: [alertname, job], group_wait: 30s, group_interval: 5m, repeat_interval: 4h}

store:
  retention:
    raw: 7d             # samples
    rollup: 90d         # events, jobs, requests and alerts
    size: 2GiB          # of the database; beyond it the oldest samples go

# The API over TCP, for reading only (Grafana, promtool). Without it there is the Unix socket.
# api: {listen: "127.0.0.1:9464", token: "file:/etc/sentinel/token"}
"""
