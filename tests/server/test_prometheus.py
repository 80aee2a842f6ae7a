"""`/api/v1/` as Prometheus answers it, for its own clients too."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sentinel.api.client import ApiError, Client, path_with
from sentinel.server.listen import Listener, TcpListener, UnixListener
from sentinel.server.settings import Settings
from tests.server.small import NOW, Running, SmallDaemon, until

TOKEN = "a-token"


@pytest.fixture
def daemon() -> SmallDaemon:
    """A host and two jobs, measured every 2 s for a minute."""
    daemon = SmallDaemon()
    daemon.add_job("a")
    for second in range(0, 61, 2):
        at = NOW - 60 + second
        daemon.measure("host", {(): {"host_load1": 0.5, "host_oom_kills_total": second // 2}}, at)
        daemon.measure("job", {("a",): {"job_processes": 3, "job_open_fds": second}, ("b",): {"job_processes": 1}}, at)
    return daemon


def query(client: Client, expr: str, **more: object) -> Any:
    return client.get(path_with("/api/v1/query", query=expr, **more))["data"]


def test_a_vector(client: Client) -> None:
    assert query(client, "job_processes", time=NOW) == {
        "resultType": "vector",
        "result": [
            {"metric": {"__name__": "job_processes", "job": "a"}, "value": [NOW, "3"]},
            {"metric": {"__name__": "job_processes", "job": "b"}, "value": [NOW, "1"]},
        ],
    }


def test_a_filter_removes_what_does_not_hold(client: Client) -> None:
    assert [each["metric"]["job"] for each in query(client, "job_processes > 2")["result"]] == ["a"]


def test_the_time_defaults_to_now_and_may_be_written_as_a_date(client: Client) -> None:
    assert query(client, "time()") == {"resultType": "scalar", "result": [NOW, "1800000000"]}
    assert query(client, "time()", time="2027-01-15T08:00:00.5Z")["result"] == [NOW + 0.5, "1800000000.5"]


def test_a_text(client: Client) -> None:
    assert query(client, '"a"')["resultType"] == "string"


def test_a_range_selector_gives_the_samples(client: Client) -> None:
    (found,) = query(client, 'job_open_fds{job="a"}[5s]')["result"]

    assert found["values"] == [[NOW - 4, "56"], [NOW - 2, "58"], [NOW, "60"]]


def test_a_range_query(client: Client) -> None:
    path = path_with("/api/v1/query_range", query="job_open_fds", start=NOW - 4, end=NOW, step="2s")

    data = client.get(path)["data"]

    assert data["resultType"] == "matrix"
    assert data["result"][0]["values"] == [[NOW - 4, "56"], [NOW - 2, "58"], [NOW, "60"]]


def test_the_lookback_can_be_said(client: Client) -> None:
    late = NOW + 100
    assert len(query(client, "host_load1", time=late)["result"]) == 1
    assert query(client, "host_load1", time=late, lookback_delta="30s")["result"] == []


def test_a_limit_cuts_and_says_so(client: Client) -> None:
    answer = client.get(path_with("/api/v1/query", query="job_processes", limit=1))

    assert len(answer["data"]["result"]) == 1
    assert answer["warnings"] == ["results truncated due to limit"]


@pytest.mark.parametrize(
    ("path", "status", "error_type", "words"),
    [
        ("/api/v1/query?query=up%7B", 400, "bad_data", 'invalid parameter "query": 1:'),
        ("/api/v1/query?query=", 400, "bad_data", 'invalid parameter "query"'),
        ("/api/v1/query?query=up&time=x", 400, "bad_data", 'invalid parameter "time": cannot parse "x" to a valid'),
        ("/api/v1/query?query=up&time=NaN", 400, "bad_data", 'invalid parameter "time"'),
        ("/api/v1/query?query=up&limit=-1", 400, "bad_data", "limit must be non-negative"),
        ("/api/v1/query?query=up&timeout=x", 400, "bad_data", "to a valid duration"),
        ("/api/v1/query?query=job_processes*on()host_load1*on(job)job_processes", 422, "execution", ""),
        ("/api/v1/query_range?query=up&start=1&end=2", 400, "bad_data", 'invalid parameter "step"'),
        ("/api/v1/query_range?query=up&start=1&end=2&step=0", 400, "bad_data", "zero or negative"),
        ("/api/v1/query_range?query=up&start=1&end=2&step=-5", 400, "bad_data", "zero or negative"),
        ("/api/v1/query_range?query=up&start=2&end=1&step=1", 400, "bad_data", "must not be before start"),
        ("/api/v1/query_range?query=up&start=1&end=99999&step=1", 400, "bad_data", "11,000 points"),
        ("/api/v1/query_range?query=up[5m]&start=1&end=2&step=1", 400, "bad_data", "range vector"),
        ("/api/v1/series", 400, "bad_data", "no match[] parameter"),
        ("/api/v1/series?match[]=sum(up)", 400, "bad_data", "expected a vector selector"),
        ("/api/v1/label/a-b/values", 400, "bad_data", "invalid label name"),
        ("/api/v1/rules?type=x", 400, "bad_data", "not supported value"),
        ("/api/v1/nothing", 404, "not_found", "nothing at"),
    ],
)
def test_errors_have_prometheus_form(client: Client, path: str, status: int, error_type: str, words: str) -> None:
    with pytest.raises(ApiError) as refused:
        client.get(path)

    assert (refused.value.status, refused.value.kind) == (status, error_type)
    assert words in refused.value.message


def test_a_query_that_takes_too_long_is_given_up(client: Client) -> None:
    with pytest.raises(ApiError) as refused:
        client.get(path_with("/api/v1/query", query="job_processes", timeout="0"))

    assert (refused.value.status, refused.value.kind) == (503, "timeout")


def test_series_labels_and_their_values(client: Client) -> None:
    both = [{"__name__": "job_processes", "job": "a"}, {"__name__": "job_processes", "job": "b"}]
    assert client.get(path_with("/api/v1/series", **{"match[]": "job_processes"}))["data"] == both
    assert client.get("/api/v1/labels")["data"] == ["__name__", "job"]
    assert client.get("/api/v1/label/job/values")["data"] == ["a", "b"]
    assert client.get(path_with("/api/v1/label/job/values", **{"match[]": "job_open_fds"}))["data"] == ["a"]
    assert "job_processes" in client.get("/api/v1/label/__name__/values")["data"]
    assert client.get("/api/v1/label/U___5f__name_5f__5f_/values")["status"] == "success"
    assert client.get("/api/v1/label/job/values?limit=1")["data"] == ["a"]
    long_ago = path_with("/api/v1/series", **{"match[]": "job_processes"}, start=1, end=2)
    assert client.get(long_ago)["data"] == []


def test_metadata_knows_every_metric(client: Client) -> None:
    data = client.get("/api/v1/metadata?metric=job_processes")["data"]

    assert data == {"job_processes": [{"type": "gauge", "help": "Processes in its tree.", "unit": ""}]}
    assert len(client.get("/api/v1/metadata")["data"]) > 80


def test_rules_and_alerts(client: Client, daemon: SmallDaemon) -> None:
    daemon.add_alert("a")

    (group,) = client.get("/api/v1/rules")["data"]["groups"]
    (alert,) = client.get("/api/v1/alerts")["data"]["alerts"]

    assert (group["name"], group["interval"]) == ("memory", 2.0)
    assert (group["rules"][0]["state"], group["rules"][0]["health"]) == ("firing", "ok")
    assert alert["activeAt"] == "2027-01-15T07:59:50.000Z"
    assert alert["value"] == "4.500000e+01"
    assert client.get("/api/v1/rules?type=record")["data"]["groups"] == []
    assert client.get("/api/v1/rules?rule_group[]=other")["data"]["groups"] == []


def test_the_small_endpoints(client: Client) -> None:
    assert client.get("/api/v1/targets")["data"]["activeTargets"] == []
    assert client.get("/api/v1/status/buildinfo")["data"]["version"].startswith("3.")
    assert client.get("/api/v1/format_query?query=sum(up)by(job)")["data"] == "sum by (job) (up)"
    assert "ready" in client.get("/-/ready")


def test_metrics_in_the_text_format(client: Client) -> None:
    lines = client.get("/metrics").splitlines()

    at = lines.index("# TYPE job_processes gauge")
    assert lines[at - 1] == "# HELP job_processes Processes in its tree."
    assert lines[at + 1 : at + 3] == ['job_processes{job="a"} 3', 'job_processes{job="b"} 1']
    assert "# TYPE host_oom_kills_total counter" in lines


def test_metrics_leave_out_what_has_ended(client: Client, daemon: SmallDaemon) -> None:
    from sentinel.model.families import JOB

    daemon.window.append(JOB.batch(NOW + 1, {}, covers=[("b",)]))
    daemon.clock.advance(1)

    text = client.get("/metrics")

    assert 'job_processes{job="a"} 3' in text
    assert 'job="b"' not in text


def test_metrics_leave_out_what_is_too_old_to_be_true(client: Client, daemon: SmallDaemon) -> None:
    daemon.clock.advance(5)
    assert "job_processes" in client.get("/metrics")

    daemon.clock.advance(100)
    assert client.get("/metrics") == ""


def test_federation_has_times(client: Client) -> None:
    text = client.get("/federate?match[]=job_processes")

    assert f'job_processes{{job="a"}} 3 {int(NOW * 1000)}' in text
    assert "host_load1" not in text


class TestOverTcp:
    """Clients that do not speak over a Unix socket."""

    @pytest.fixture
    def running(self, daemon: SmallDaemon, directory: Path) -> Iterator[Running]:
        listeners: list[Listener] = [UnixListener(directory / "s.sock"), TcpListener("127.0.0.1", 0)]
        with Running(daemon, listeners, Settings(token=TOKEN)) as running:
            yield running

    @pytest.fixture
    def url(self, running: Running) -> str:
        return "http://{}:{}".format(*running.server.listening.addresses[0])

    def test_a_form_is_read_as_grafana_sends_it(self, url: str) -> None:
        form = {"query": "job_open_fds", "start": NOW - 4, "end": NOW, "step": "2"}
        headers = {
            "Authorization": f"Bearer {TOKEN}",
            "Content-Type": "application/x-www-form-urlencoded; charset=utf-8",
        }
        asked = urllib.request.Request(
            f"{url}/api/v1/query_range", urllib.parse.urlencode(form).encode(), headers, method="POST"
        )
        with urllib.request.urlopen(asked, timeout=10) as answer:
            data = json.load(answer)

        assert len(data["data"]["result"][0]["values"]) == 3

    @pytest.fixture
    def promtool(self, url: str) -> Callable[..., str]:
        """Debian's promtool, asking us."""
        program = shutil.which("promtool")
        if program is None:
            pytest.skip("promtool (Debian's package prometheus) is not installed")
        address = url.replace("://", f"://anybody:{TOKEN}@")

        def ask(*arguments: str) -> str:
            command = [program, "query", *(address if word == "URL" else word for word in arguments)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            assert done.returncode == 0, done.stderr + done.stdout
            return done.stdout

        return ask

    def test_promtool_asks_an_instant_query(self, promtool: Callable[..., str]) -> None:
        said = promtool("instant", f"--time={int(NOW)}", "URL", "job_processes > 2")

        assert said.strip() == f'job_processes{{job="a"}} => 3 @[{int(NOW)}]'

    def test_promtool_asks_a_range_query(self, promtool: Callable[..., str]) -> None:
        said = promtool(
            "range", f"--start={int(NOW - 4)}", f"--end={int(NOW)}", "--step=2s", "URL", "sum(job_open_fds)"
        )

        assert [line.split(" @")[0] for line in said.splitlines()[1:]] == ["56", "58", "60"]

    def test_promtool_asks_for_series_and_labels(self, promtool: Callable[..., str]) -> None:
        assert '{__name__="job_processes", job="a"}' in promtool("series", "--match=job_processes", "URL")
        assert promtool("labels", "URL", "job").split() == ["a", "b"]

    def test_promtool_finds_no_fault_in_our_metrics(self, client: Client, daemon: SmallDaemon) -> None:
        program = shutil.which("promtool")
        if program is None:
            pytest.skip("promtool (Debian's package prometheus) is not installed")
        daemon.measure("host_disk", {('/a "b"\\c\n',): {"host_disk_free_bytes": 1.5e300}})

        checked = subprocess.run(
            [program, "check", "metrics"], input=client.get("/metrics"), capture_output=True, text=True, check=False
        )

        # It also has opinions on names, which the design has fixed; what cannot be read it calls an error.
        assert "error" not in checked.stderr, checked.stderr

    def test_prometheus_scrapes_us_and_honours_our_labels(self, url: str, daemon: SmallDaemon, tmp_path: Path) -> None:
        program = shutil.which("prometheus")
        if program is None:
            pytest.skip("prometheus (Debian's package) is not installed")
        daemon.clock.advance(time.time() - NOW)
        daemon.measure("checkpoint", {("a",): {"checkpoint_last_step": 7}}, daemon.clock.now())
        (tmp_path / "prometheus.yml").write_text(f"""
scrape_configs:
  - job_name: sentinel
    scrape_interval: 1s
    honor_labels: true
    authorization: {{credentials: {TOKEN}}}
    static_configs: [{{targets: ["{url.removeprefix("http://")}"]}}]
""")
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        command = [
            program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address={address}", "--log.level=error",
        ]  # fmt: skip
        asked = f"http://{address}/api/v1/query?query=checkpoint_last_step"
        seen: list[tuple[dict[str, str], str]] = []

        def scraped() -> bool:
            seen[:] = _samples(asked)
            return bool(seen)

        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as scraping:
            try:
                until(scraped, 30)
            finally:
                scraping.terminate()

        assert seen == [({"__name__": "checkpoint_last_step", "job": "a"}, "7")]


def _samples(url: str) -> list[tuple[dict[str, str], str]]:
    """What a Prometheus has, without the label that it adds."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            result = json.load(answer)["data"]["result"]
    except OSError:
        return []
    return [({k: v for k, v in each["metric"].items() if k != "instance"}, each["value"][1]) for each in result]
