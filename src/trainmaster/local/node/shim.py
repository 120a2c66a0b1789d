"""Runs one attempt of one container, and outlives the node that started it.

It is a script that uses only the standard library, run as ``python -I -S shim.py run SPEC``: it starts in a few
milliseconds and imports nothing of trainmaster. Beside SPEC it writes ``log`` (lines with times, in the format of
container runtimes), ``unfinished`` (the newest incomplete line, for a live view), ``running.json`` (when the program
runs) and ``exit.json`` (how it ended). stdout and stderr of the program are one pipe: two could not be read in the
order in which they were written. It is a child subreaper: all descendants of the program are killed when the
program ends, as in a pid namespace.

    SIGTERM   terminates the program        SIGUSR1   kills the program and all its descendants

With an ``owner`` in SPEC the shim ends with that process.

``exec SPEC`` runs a command inside a running container (probes, hooks). ``session SPEC`` does so for ``kubectl exec``:
it stays the parent of the command, ends with its exit code, and kills what the command leaves running. SIGTERM kills
the command. ``probe`` detects which namespaces work.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import stat
import sys
import time

TYPE_CHECKING = False  # importing typing would take as long as all other imports
if TYPE_CHECKING:
    from typing import Any, NoReturn

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER = 0x20000, 0x4000000, 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 1, 32, 4096, 8192, 16384, 1 << 18
MNT_DETACH = 2
KEPT_FLAGS = {2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}
"""Flags of statvfs and of mount: in a user namespace a remount must keep the flags of the original mount."""
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
CAPABILITY_VERSION, CAPABILITY_WORDS = 0x20080522, 6
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "ppc64le": 203, "s390x": 217, "riscv64": 41}

SYSTEM_FOLDERS = frozenset(
    {"/", "/dev", "/etc", "/mnt", "/opt", "/run", "/srv", "/usr", "/var", "/var/lib", "/var/log", "/var/run"}
)
"""A mount point inside of these is created in a private copy, even if the folder is writable."""

LINE_LIMIT = 16 * 1024
LOG_LIMIT = 10 * 1024 * 1024
LOG_FILES = 25
"""Files of a log that are kept, the newest included: 250 MiB with the times."""
CONSUMED_FILES = 3
"""The same for a log whose reader deletes the oldest file."""
CHUNK = 64 * 1024
MEMORY_PERIOD = 0.2
SHOW_PERIOD = 0.1
"""Seconds between two stored states of an unfinished line."""
FULL_PERIOD = 0.02
"""Seconds between two checks whether the reader of a full log has deleted its oldest file."""
MESSAGE_LIMIT = 4096
FALLBACK_LINES = 80
FALLBACK_LIMIT = 2048
START_ERROR = 128
NOT_EXECUTABLE = 126
"""The exit code of a command that cannot be executed, as in a shell."""


class StartFailed(Exception):
    """The container cannot be started; the message is shown in the pod's status."""


def main() -> None:
    mode, argument = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    if mode == "probe":
        print(json.dumps(_probe()))
    elif mode == "exec":
        _exec_inside(_read(argument))
    elif mode == "session":
        sys.exit(_session(_read(argument)))
    else:
        sys.exit(Shim(argument).run())


def _read(file: str) -> dict[str, Any]:
    with open(file, encoding="utf-8") as source:
        content: dict[str, Any] = json.load(source)
        return content


def _write(file: str, content: dict[str, Any]) -> None:
    """Writes atomically: the node may read at any time."""
    with open(file + ".new", "w", encoding="utf-8") as target:
        json.dump(content, target)
    os.replace(file + ".new", file)


def _now() -> str:
    return _time_of(time.time_ns())


def _time_of(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z"


# --- the attempt -------------------------------------------------------------------------------


class Shim:
    def __init__(self, file: str) -> None:
        self._spec = _read(file)
        self._folder = os.path.dirname(file)
        self._log = Log(os.path.join(self._folder, "log"), is_consumed=self._spec.get("isLogConsumed", False))
        self._main = 0
        self._is_killed = False
        self._is_oom = False

    def run(self) -> int:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # The handlers only write into this pipe: select wakes up, and the loop acts.
        self._wake, wake_end = os.pipe()
        os.set_blocking(wake_end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._follow(self._spec.get("owner", 0))
        started = _now()
        try:
            output = self._start(started)
        except StartFailed as unfit:
            self._end({"exitCode": START_ERROR, "reason": "StartError", "message": str(unfit)}, started)
            self._report({"error": str(unfit)})
            return 0
        self._report({"pid": self._main, "startedAt": started})
        code = self._serve(output)
        self._drain(output)
        self._end(self._outcome(code), started)
        return 0

    def _follow(self, owner: int) -> None:
        """Ends with the process that started the shim. That process must start it from its main thread: PDEATHSIG is
        sent when the parent thread ends."""
        if owner:
            _prctl(PR_SET_PDEATHSIG, signal.SIGUSR1)
            if os.getppid() != owner:  # the owner ended before prctl took effect
                _signal(os.getpid(), signal.SIGUSR1)

    def _report(self, what: dict[str, Any]) -> None:
        """Writes the one line of stdout that the node reads, then redirects stdout to /dev/null."""
        try:
            os.write(1, json.dumps(what).encode() + b"\n")
        except OSError:
            pass  # the node is gone; the next one reads the files
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.close(null)

    def _start(self, started: str) -> int:
        """Returns the pipe with the output of the program."""
        output, output_end = os.pipe()
        fault, fault_end = os.pipe()
        shim = os.getpid()
        self._main = os.fork()
        if self._main == 0:
            _become(self._spec, shim, output_end, fault_end)
        for end in (output_end, fault_end):
            os.close(end)
        message = b""
        while piece := _read_some(fault):  # exec closes the pipe: no data means that the program runs
            message += piece
        os.close(fault)
        if message:
            os.waitpid(self._main, 0)
            self._main = 0
            raise StartFailed(message.decode(errors="replace"))
        os.set_blocking(output, False)
        try:
            _write(os.path.join(self._folder, "running.json"), {"pid": self._main, "startedAt": started})
        except OSError as error:
            _end_children()
            raise StartFailed(f"cannot keep a record of the container: {error}") from error
        return output

    def _serve(self, output: int) -> int:
        """Copies output, handles signals and watches memory until the program and all its descendants have ended."""
        poll, without_output = select.poll(), select.poll()
        without_output.register(self._wake, select.POLLIN)
        for descriptor in (self._wake, output):
            poll.register(descriptor, select.POLLIN)
        limit = self._spec.get("memory", 0)
        period = MEMORY_PERIOD if limit else None
        code = None
        while True:
            show_again = self._log.show(time.monotonic())
            # While the log is full, the pipe is not read: the program waits when it writes.
            is_full = self._log.is_full
            pause = _timeout(period, show_again, FULL_PERIOD if is_full else None)
            for descriptor, _ in (without_output if is_full else poll).poll(pause):
                if descriptor == self._wake:
                    self._obey(os.read(self._wake, CHUNK))
                elif not self._copy(output):
                    poll.unregister(output)
            if limit and not self._is_oom and _tree_memory(os.getpid()) > limit:
                self._is_oom = self._is_killed = True
            if self._is_killed:
                _signal(self._main, signal.SIGKILL)
            ended = self._reap()
            code = ended if ended is not None else code
            if code is not None:
                _end_children()
                return code

    def _obey(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers:
            # Without a pid namespace a shell would end alone, without its children.
            _signal_group(self._main, signal.SIGTERM)
        if signal.SIGUSR1 in numbers:
            self._is_killed = True

    def _reap(self) -> int | None:
        """Reaps all ended children; returns the wait status of the program if it is among them."""
        program_status = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return program_status
            if pid == 0:
                return program_status
            if pid == self._main:
                program_status = status

    def _copy(self, output: int) -> bool:
        """False at the end of the output."""
        try:
            data = os.read(output, CHUNK)
        except BlockingIOError:
            return True
        self._log.write(data)
        return bool(data)

    def _drain(self, output: int) -> None:
        """Copies what is left in the pipe after the last writer has ended."""
        while data := _read_some(output):
            self._log.write(data)
        self._log.close()

    def _outcome(self, status: int) -> dict[str, Any]:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = 128 + number if number else os.WEXITSTATUS(status)
        reason = "OOMKilled" if self._is_oom else "Completed" if code == 0 else "Error"
        message = _message(self._spec, self._folder, failed=code != 0)
        # The kubelet reports a signal only if the runtime does; the exit code contains it.
        return {"exitCode": code, "signal": number, "reason": reason, "message": message}

    def _end(self, outcome: dict[str, Any], started: str) -> None:
        record = {**outcome, "startedAt": started, "finishedAt": _now()}
        try:
            _write(os.path.join(self._folder, "exit.json"), record)
        except OSError:
            self._log.drop()  # on a full disk the exit record is more important than log lines
            _write(os.path.join(self._folder, "exit.json"), record)


def _timeout(*seconds: float | None) -> float | None:
    """The smallest one in milliseconds; None if there is none."""
    limits = [each for each in seconds if each is not None]
    return min(limits) * 1000 if limits else None


def _read_some(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, CHUNK)
    except BlockingIOError:
        return b""


def _message(spec: dict[str, Any], folder: str, *, failed: bool) -> str:
    """The termination message: the program's file, or its last log lines if the pod requests that."""
    try:
        with open(spec["messageFile"], "rb") as source:
            text = source.read(MESSAGE_LIMIT)
    except OSError:
        text = b""
    if not text and failed and spec.get("messagePolicy") == "FallbackToLogsOnError":
        text = _last_lines(os.path.join(folder, "log"))
    return text.decode(errors="replace")


def _last_lines(file: str) -> bytes:
    """Of the log and the file before it: the log may have been begun anew for its last line."""
    text = b""
    for part in (file, f"{file}.1"):
        room = 8 * FALLBACK_LIMIT - len(text)
        if room > 0 and os.path.exists(part):
            with open(part, "rb") as source:
                source.seek(max(0, os.fstat(source.fileno()).st_size - room))
                text = source.read() + text
    lines = text.removesuffix(b"\n").split(b"\n")[-FALLBACK_LINES:]
    texts = [line.split(b" ", 3)[3] for line in lines if line.count(b" ") >= 3]
    return b"\n".join(texts)[-FALLBACK_LIMIT:]


class Log:
    """Lines like ``2026-11-15T12:00:00.000000000Z stdout F text``; P instead of F if the line goes on.
    stderr is the same pipe, so all lines are of stdout.

    A full file is renamed to ``log.1``, that one to ``log.2`` and so on, until the oldest is replaced. Every file but
    the very first begins with a time and the number of stored lines before it: so a reader knows how many it missed.

    With ``is_consumed`` a reader deletes the oldest file when it has read it, and no file is replaced before that. So
    nothing is missed, and there are no such numbers."""

    def __init__(self, file: str, *, is_consumed: bool = False) -> None:
        self._file = file
        self._files = CONSUMED_FILES if is_consumed else LOG_FILES
        self._is_consumed = is_consumed
        self._lines = 0
        """Stored lines in all files, also in those that were replaced."""
        self._rest = b""
        self._is_shown = True
        """The unfinished line has not changed since ``show``, or there is none."""
        self._show_at = 0.0
        self._open()

    def _open(self) -> None:
        self._target = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._target).st_size

    @property
    def is_full(self) -> bool:
        """The reader is behind: no more lines should be written until it has deleted the oldest file."""
        return self._size >= LOG_LIMIT and not self._can_rotate()

    def _can_rotate(self) -> bool:
        return not (self._is_consumed and os.path.exists(f"{self._file}.{self._files - 1}"))

    def write(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        head = f"{_now()} stdout ".encode()
        out = bytearray()
        for line in lines:
            for start in range(0, len(line) - LINE_LIMIT, LINE_LIMIT):
                out += head + b"P " + line[start : start + LINE_LIMIT] + b"\n"
            tail = len(line) - (len(line) - 1) % LINE_LIMIT - 1 if line else 0
            out += head + b"F " + line[tail:] + b"\n"
        while len(rest) >= LINE_LIMIT:
            out += head + b"P " + rest[:LINE_LIMIT] + b"\n"
            rest = rest[LINE_LIMIT:]
        self._rest = rest
        self._is_shown = not rest
        self._put(bytes(out))

    def show(self, now: float) -> float | None:
        """Stores the newest state of the unfinished line in a file of its own: in the log, every state would be a line.
        Returns the seconds until the next call; None if there is nothing to store."""
        if self._is_shown:
            return None
        if now < self._show_at:
            return self._show_at - now
        rest = self._rest
        newest = rest[max(0, rest.rstrip(b"\r ").rfind(b"\r")) :]
        file = os.path.join(os.path.dirname(self._file), "unfinished")
        try:
            with open(file + ".new", "wb") as target:
                target.write(f"{_now()} stdout P ".encode() + newest)
            os.replace(file + ".new", file)
        except OSError:
            pass  # the disk is full: the line is stored when it is complete
        self._is_shown, self._show_at = True, now + SHOW_PERIOD
        return None

    def close(self) -> None:
        """Writes the last line if it is incomplete."""
        if self._rest:
            self._put(f"{_now()} stdout P ".encode() + self._rest + b"\n")

    def drop(self) -> None:
        for number in range(1, self._files):
            if os.path.exists(f"{self._file}.{number}"):
                os.unlink(f"{self._file}.{number}")
        os.ftruncate(self._target, 0)

    def _put(self, out: bytes) -> None:
        lines = out.count(b"\n")
        if self._size + len(out) > LOG_LIMIT and self._size and self._can_rotate():
            self._rotate()
            out = (b"" if self._is_consumed else f"{_now()} {self._lines}\n".encode()) + out
        self._lines += lines
        try:
            while out:
                written = os.write(self._target, out)
                self._size += written
                out = out[written:]
        except OSError:
            pass  # a full disk loses lines but does not stop the program

    def _rotate(self) -> None:
        os.close(self._target)
        for number in range(self._files - 1, 0, -1):
            older = f"{self._file}.{number - 1}" if number > 1 else self._file
            if os.path.exists(older):
                os.replace(older, f"{self._file}.{number}")
        self._open()


# --- processes ---------------------------------------------------------------------------------


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # the process has ended, or changed its user (setuid): it cannot be signalled


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        _signal(pid, number)


def _end_children() -> None:
    """Kills all descendants: orphans become children of the shim, so the depth of the tree limits the rounds."""
    while True:
        for pid in _children(os.getpid()):
            _signal(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as source:
                children += map(int, source.read().split())
    except OSError:  # the process has ended, or the kernel does not have this file
        return children or [other for other in _pids() if _parent(other) == pid]
    return children


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as source:
            return int(source.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _tree_memory(root: int) -> int:
    """Resident bytes of all descendants, without the shim itself."""
    pages, pending = 0, _children(root)
    while pending:
        pid = pending.pop()
        pending += _children(pid)
        try:
            with open(f"/proc/{pid}/statm", "rb") as source:
                fields = source.read().split()
                pages += int(fields[1]) - int(fields[2])  # without file pages, which are shared and reclaimable
        except (OSError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


# --- the container's side ----------------------------------------------------------------------


def _become(spec: dict[str, Any], shim: int, output: int, fault: int) -> NoReturn:
    """Runs in the forked child: executes the program, or reports the error and exits."""
    try:
        os.setsid()
        _isolate(spec)
        _redirect(output)
        _prepare(spec)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != shim:
            os._exit(137)  # the shim was killed before PDEATHSIG was set
        _execute(spec)
    except StartFailed as unfit:
        os.write(fault, str(unfit).encode())
    except BaseException as error:
        os.write(fault, f"{type(error).__name__}: {error}".encode())
    os._exit(START_ERROR)


def _redirect(output: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _prepare(spec: dict[str, Any]) -> None:
    signal.set_wakeup_fd(-1)
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_DFL)  # Python ignores SIGPIPE; programs expect the default
        except (OSError, ValueError):
            continue
    try:
        os.chdir(spec["cwd"])
    except OSError as error:
        raise StartFailed(f'cannot start in workingDir "{spec["cwd"]}": {error.strerror}') from error
    _limit(spec.get("limits") or {})


def _limit(limits: dict[str, bool]) -> None:
    """Gives up rights for good: the program and its children cannot get them back."""
    if limits.get("noNewPrivileges"):
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
    if limits.get("noCapabilities") and os.geteuid() == 0:  # programs of other users start with none
        _drop_capabilities()


def _drop_capabilities() -> None:
    number = 0
    try:
        while True:
            _prctl(PR_CAPBSET_DROP, number)
            number += 1
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: there is no such capability, so all are dropped
            raise StartFailed(f"cannot drop capabilities: {error.strerror}") from error
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    _checked("capset", header, (ctypes.c_uint32 * CAPABILITY_WORDS)())


def _execute(spec: dict[str, Any]) -> None:
    argv, env = spec["argv"], spec["env"]
    program, path = argv[0], env.get("PATH", os.defpath)
    candidates = [program] if "/" in program else [os.path.join(place, program) for place in path.split(":")]
    refused = None
    for candidate in candidates:
        try:
            os.execve(candidate, argv, env)  # noqa: S606  runs the container's command
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = refused or (candidate, error)
    if refused:
        raise StartFailed(f'exec: "{refused[0]}": {refused[1].strerror}')
    if "/" in program:
        raise StartFailed(f'exec: "{program}": no such file or directory on this machine')
    raise StartFailed(f'exec: "{program}": executable file not found in $PATH')


def _exec_inside(spec: dict[str, Any]) -> None:
    """Executes a command in the namespaces of a running container."""
    try:
        for kind, flag in (("user", CLONE_NEWUSER), ("uts", CLONE_NEWUTS), ("mnt", CLONE_NEWNS)):
            if os.readlink(f"/proc/{spec['pid']}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}"):
                with open(f"/proc/{spec['pid']}/ns/{kind}", "rb") as namespace:
                    _checked("setns", namespace.fileno(), flag)
        _prepare(spec)
        _execute(spec)
    except (StartFailed, OSError) as error:
        os.write(2, f"{error}\n".encode())
    os._exit(NOT_EXECUTABLE)


def _session(spec: dict[str, Any]) -> int:
    """The exit code of a command that a client runs inside a container."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)

    def kill(*_: Any) -> None:
        _signal(command, signal.SIGKILL)

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until the handler knows the command
    command = os.fork()
    if command == 0:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if spec["tty"]:
            _take_terminal()
        _exec_inside(spec)
    signal.signal(signal.SIGTERM, kill)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != spec["owner"]:  # the node ended before prctl took effect
        kill()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # so that the client sees when the command closes its input
    status = _wait_for(command)
    _end_children()
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _wait_for(child: int) -> int:
    """The wait status of a child; orphans that end before it are reaped."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return status


def _take_terminal() -> None:
    """Makes stdin the terminal that controls this session: Ctrl-C and changes of its size become signals."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


# --- namespaces --------------------------------------------------------------------------------


def _library() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _checked(name: str, *arguments: Any) -> None:
    if getattr(_library(), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        _checked("prctl", option, value, 0, 0, 0)


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    _checked("mount", source.encode(), target.encode(), kind.encode() or None, flags, data.encode() or None)


def _probe() -> dict[str, str]:
    """Which isolation works: "mount" (root), "user" (other users, if the system allows it) or none."""
    why = ""
    for mode in ("mount", "user"):
        receiver, sender = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _enter(mode)
                _mount("none", "/tmp", "tmpfs", 0)  # noqa: S108  only in the new namespace
            except (OSError, AttributeError) as error:
                os.write(sender, str(error).encode())
            os._exit(0)
        os.close(sender)
        why = os.read(receiver, CHUNK).decode()
        os.close(receiver)
        os.waitpid(child, 0)
        if not why:
            return {"mode": mode, "why": ""}
    return {"mode": "", "why": why}


def _enter(mode: str) -> None:
    if mode == "mount":
        _checked("unshare", CLONE_NEWNS | CLONE_NEWUTS)
    else:
        uid, gid = os.getuid(), os.getgid()
        _checked("unshare", CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS)
        for file, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{file}", "w", encoding="ascii") as target:
                target.write(text)
    _mount("none", "/", "", MS_REC | MS_PRIVATE)


def _isolate(spec: dict[str, Any]) -> None:
    if not spec["namespaces"]:
        return
    try:
        _enter(spec["namespaces"])
        hostname = spec["hostname"].encode()
        _checked("sethostname", hostname, len(hostname))
        View(spec["staging"]).show(spec["mounts"])
    except OSError as error:
        raise StartFailed(f"cannot isolate the container: {error}") from error


class View:
    """The container's file system: that of the machine, with the container's mounts.

    A mount point that does not exist is created: in place if its parent belongs to the user, else in a private copy of
    the parent, a tmpfs with bind mounts of all original entries. So nothing is created in system folders.
    """

    def __init__(self, staging: str) -> None:
        self._staging = staging
        self._root = ""
        self._number = 0

    def show(self, mounts: list[dict[str, Any]]) -> None:
        wanted = sorted(({**mount, "target": _resolved(mount["target"])} for mount in mounts), key=_depth)
        if any(_ancestor(mount["target"]) == "/" for mount in wanted):
            self._root = self._copy("/")
        for mount in wanted:
            try:
                self._show(mount)
            except OSError as error:
                raise StartFailed(f"cannot mount {mount['source']} at {mount['target']}: {error.strerror}") from error
        if self._root:
            self._pivot()

    def _show(self, mount: dict[str, Any]) -> None:
        source, target = mount["source"], self._root + mount["target"]
        if not os.path.lexists(target):
            self._make_point(source, target)
        _mount(source, target, "", MS_BIND | MS_REC)
        if mount.get("readOnly"):
            flags = os.statvfs(target).f_flag
            kept = sum(there for here, there in KEPT_FLAGS.items() if flags & here)
            _mount("none", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | kept)

    def _make_point(self, source: str, target: str) -> None:
        parent = _ancestor(target)
        if parent != (self._root or "/") and self._is_foreign(parent):
            copy = self._copy(parent)
            _mount(copy, parent, "", MS_MOVE)
        if os.path.isdir(source):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o666))

    def _is_foreign(self, folder: str) -> bool:
        plain = folder.removeprefix(self._root) or "/"
        return plain in SYSTEM_FOLDERS or not os.access(folder, os.W_OK)

    def _copy(self, folder: str) -> str:
        """A tmpfs with the same entries as the folder."""
        self._number += 1
        copy = os.path.join(self._staging, str(self._number))
        os.makedirs(copy, exist_ok=True)
        _mount("none", copy, "tmpfs", 0, "mode=755")
        with os.scandir(folder) as entries:
            for entry in entries:
                self._repeat(entry, os.path.join(copy, entry.name))
        return copy

    def _repeat(self, entry: os.DirEntry[str], target: str) -> None:
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(entry.path), target)
            return
        if stat.S_ISBLK(mode) or _is_console(entry.path):
            return  # jobs do not use disks and consoles, of which there are hundreds
        if stat.S_ISDIR(mode):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        try:
            _mount(entry.path, target, "", MS_BIND | MS_REC)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL):
                raise

    def _pivot(self) -> None:
        number = PIVOT_ROOT.get(os.uname().machine)
        if number is None:
            raise StartFailed(f"mount paths in / are not supported on {os.uname().machine}")
        os.chdir(self._root)
        _checked("syscall", number, b".", b".")
        _checked("umount2", b".", MNT_DETACH)
        os.chdir("/")


def _resolved(target: str) -> str:
    return os.path.realpath(target)


def _depth(mount: dict[str, Any]) -> int:
    path = os.path.normpath(mount["target"])
    return path.count("/") if path != "/" else 0


def _ancestor(target: str) -> str:
    """The deepest existing folder of a path; the target itself if it exists."""
    while not os.path.lexists(target):
        target = os.path.dirname(target)
    return target


def _is_console(path: str) -> bool:
    folder, name = os.path.split(path)
    return folder.endswith("/dev") and name.startswith(("tty", "vcs", "loop")) and name != "tty"


if __name__ == "__main__":
    main()
