"""`sentinel run` on a terminal: a real pty, and a shell with job control as small as it can be."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios
from pathlib import Path

from tests.jobs.desk import Desk, running, until

SHOWS = """
import os, sys, time
print("isatty", sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty(), flush=True)
print("size", *os.get_terminal_size(), flush=True)
"""
LISTENS = """
import os, signal, sys, time
def resized(number, frame):
    os.write(1, b"resized %d %d\\n" % os.get_terminal_size())
signal.signal(signal.SIGWINCH, resized)
open("pid", "w").write(str(os.getpid()))
print("ready", flush=True)
while True:
    print("heard", repr(sys.stdin.readline()), flush=True)
"""
COUNTS = """
import os, sys, time
open("pid", "w").write(str(os.getpid()))
for number in range(int(sys.argv[1])):
    print("line", number, flush=True)
    time.sleep(0.02)
open("done", "w").write("done")
"""


def test_the_job_sees_a_terminal_of_the_same_size(desk: Desk) -> None:
    window = desk.on_terminal("--quiet", "--", "python3", desk.script("shows.py", SHOWS), size=(31, 97))

    window.expect("isatty True True True")
    window.expect("size 97 31")
    window.expect("SHELL: ended with 0")


def test_a_terminal_that_nobody_controls_is_one_all_the_same(desk: Desk) -> None:
    """As under a test runner or an editor: a pty on stdin, stdout and stderr, and no session around it."""
    master, slave = os.openpty()
    process = desk.process(
        *desk.command("--quiet", "--", "python3", desk.script("listens.py", LISTENS)),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=desk.environ,
        start_new_session=True,
    )
    os.close(slave)
    until(lambda: desk.read("pid"))
    os.set_blocking(master, False)
    said = bytearray()

    def heard(words: bytes) -> bool:
        with contextlib.suppress(BlockingIOError, OSError):
            said.extend(os.read(master, 65536))
        return words in said

    until(lambda: heard(b"ready"))
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("4H", 40, 132, 0, 0))
    until(lambda: heard(b"resized 132 40"))
    os.write(master, b"\x03")
    until(lambda: heard(b"KeyboardInterrupt"))
    assert process.wait(10) == 130
    os.close(master)


def test_the_banner_comes_before_the_first_line(desk: Desk) -> None:
    window = desk.on_terminal("--", "echo", "first")

    said = window.expect("first\r\n")
    assert b"sentinel: " in said
    assert said.count(b"\n") <= 7


def test_keys_reach_the_job_and_are_echoed_once(desk: Desk) -> None:
    window = desk.on_terminal("--quiet", "--", "python3", desk.script("listens.py", LISTENS))
    window.expect("ready")

    window.type(b"hello\r")

    assert window.expect("heard 'hello\\n'").count(b"hello") == 2  # the echo and the answer


def test_a_change_of_the_window_reaches_the_job(desk: Desk) -> None:
    window = desk.on_terminal("--quiet", "--", "python3", desk.script("listens.py", LISTENS))
    window.expect("ready")

    window.resize(40, 132)

    window.expect("resized 132 40")


def test_ctrl_c_interrupts_the_job_as_without_sentinel(desk: Desk) -> None:
    window = desk.on_terminal("--quiet", "--", "python3", desk.script("listens.py", LISTENS))
    window.expect("ready")

    window.type(b"\x03")

    window.expect("KeyboardInterrupt")
    window.expect("SHELL: ended with 130")


def test_ctrl_c_reaches_the_whole_foreground_group(desk: Desk) -> None:
    window = desk.on_terminal("--quiet", "--", "sh", "-c", "trap 'echo me too' INT; echo ready; sleep 100; exit 4")
    window.expect("ready")

    window.type(b"\x03")

    window.expect("me too")  # a shell's trap runs only once its child has ended: that one heard it too
    window.expect("SHELL: ended with 4")


def test_ctrl_backslash_quits(desk: Desk) -> None:
    window = desk.on_terminal("--quiet", "--", "sh", "-c", "ulimit -c 0; echo ready; exec sleep 100")
    window.expect("ready")

    window.type(b"\x1c")

    window.expect("SHELL: ended with 131")


def test_ctrl_d_is_the_end_of_input(desk: Desk) -> None:
    window = desk.on_terminal("--quiet", "--", "sh", "-c", "echo ready; cat; echo over")
    window.expect("ready")

    window.type(b"\x04")

    window.expect("over")
    window.expect("SHELL: ended with 0")


def test_ctrl_z_suspends_the_job_and_sentinel_and_the_shell_continues_both(desk: Desk) -> None:
    window = desk.on_terminal("--quiet", "--", "python3", desk.script("counts.py", COUNTS), "200")
    window.expect("line 3")
    pid = int(desk.read("pid"))

    window.type(b"\x1a")
    window.expect("SHELL: stopped, the terminal is sane")
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "T")
    window.said = b""
    window.type(b"\n")

    window.expect("line 1")
    until(lambda: desk.read("done"))
    window.expect("line 199")
    window.expect("SHELL: ended with 0")


def test_a_shell_inside_has_job_control_of_its_own(desk: Desk) -> None:
    window = desk.on_terminal("--quiet", "--", "bash", "--norc", "--noprofile", "-i")
    window.type(b"PS1='$ '; echo sh''ell\r")
    window.expect("shell\r\n")

    window.type(b"sleep 100\r")
    window.expect("sleep 100")
    until(lambda: _in_front("sleep"))
    window.type(b"\x1a")
    window.expect("Stopped")
    window.type(b"fg\r")
    until(lambda: _in_front("sleep"))
    window.type(b"\x03")
    window.type(b"exit 3\r")

    window.expect("SHELL: ended with 3")


def test_the_terminal_is_as_it_was_afterwards(desk: Desk) -> None:
    window = desk.on_terminal("--quiet", "--", "sh", "-c", "stty -echo raw; exit 1")

    window.expect("SHELL: ended with 1\r\n")  # the carriage return: output is cooked again


def test_all_output_of_a_job_that_ends_at_once_is_shown_and_kept(desk: Desk) -> None:
    window = desk.on_terminal("--quiet", "--", "sh", "-c", "seq 1 20000")

    shown = window.expect("SHELL: ended with 0").decode().partition("\r\n")[2].split()  # but for our one line
    assert shown[:20000] == [str(number) for number in range(1, 20001)]
    (log,) = desk.state.glob("jobs/*/attempt-1/output.log")
    assert log.read_text().split() == shown[:20000]


def test_with_errors_sent_elsewhere_the_terminal_has_only_the_output(desk: Desk) -> None:
    sentinel = " ".join(desk.command("--quiet", "--", "python3", desk.script("shows.py", SHOWS)))
    window = desk.on_terminal("--quiet", "--", "sh", "-c", f"{sentinel} 2>err; echo; cat err")

    window.expect("isatty True True False")
    window.expect("the job goes on without a daemon")


def test_a_closed_window_leaves_the_job_and_its_supervisor_running(served: Desk) -> None:
    window = served.on_terminal("--", "python3", served.script("train.py", COUNTS), "120")
    window.expect("line 3")
    supervisor = served.job("train")["supervisor"]["pid"]

    window.close()

    until(lambda: served.read("done"))
    until(lambda: served.job("train")["state"] == "succeeded")
    log = Path(served.job("train")["output"][0]).read_bytes()
    assert log.split(b"\r\n")[:120] == [b"line %d" % number for number in range(120)]
    until(lambda: not running(supervisor))


def test_behind_a_pty_a_killed_supervisor_takes_neither_the_job_nor_its_output_along(served: Desk) -> None:
    window = served.on_terminal("--", "python3", served.script("train.py", COUNTS), "150")
    window.expect("line 3")
    job = served.job("train")

    os.kill(job["supervisor"]["pid"], 9)
    until(lambda: served.events("sentinel.supervisor_lost"))
    served.kill_daemon()  # not even the daemon's end takes the terminal away

    until(lambda: served.read("done"))
    log = Path(job["output"][0])
    until(lambda: "line 149" in log.read_text())
    assert log.read_bytes().split(b"\r\n") == [*(b"line %d" % number for number in range(150)), b""]
    served.start_daemon()
    until(lambda: served.job("train")["state"] == "lost")


def test_a_daemon_that_comes_back_holds_the_terminal_again(served: Desk) -> None:
    window = served.on_terminal("--", "python3", served.script("train.py", COUNTS), "250")
    window.expect("line 3")
    served.kill_daemon()
    window.expect("the daemon went away")
    served.start_daemon()
    window.expect("a daemon is there")
    until(lambda: served.events("job.running"))
    job = served.job("train")

    # The supervisor hands the master over once more; only then may it be killed.
    until(lambda: window.expect("line 1"))
    os.kill(job["supervisor"]["pid"], 9)

    until(lambda: served.read("done"))
    until(lambda: "line 249" in Path(job["output"][0]).read_text())


def _in_front(name: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().strip() == name:
                fields = (path.parent / "stat").read_text().rpartition(") ")[2].split()
                if fields[2] == fields[5]:  # its group is its terminal's foreground group
                    return True
        except OSError:
            continue
    return False
