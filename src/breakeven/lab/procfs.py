"""What Linux tells of processes: their time, faults, waiting and memory, and the time of the rest.

Every reader answers 0 (or nothing) for a process that has gone, and where the kernel does not keep
the figure; `gaps` says in words which figures those are. Counters only grow while the process and
its threads live: take differences. Formats are those of proc(5).
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable
from contextlib import suppress

PROC = "/proc"
TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE = resource.getpagesize()


def _read(path: str) -> bytes:
    """A file's content, empty where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 (Path.open costs three times it)
            return file.readall()
    except OSError:
        return b""


def _entries(path: str) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208 (names alone, read at every block)
    except OSError:
        return []


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the third (state) on: the name may hold spaces."""
    return _read(f"{PROC}/{pid}/stat").rpartition(b")")[2].split()


def allowed_cores() -> set[int]:
    """Numbers of the processors that this thread may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def cpu_seconds(pid: int) -> float:
    """Processor time (s) of a process, its ended threads included, to the nanosecond if it can be.

    Linux gives each process a CPU clock, whose number is made from the pid:
    `MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)` of include/linux/posix-timers_types.h.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except (OSError, OverflowError):
        pass
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / TICK if len(fields) > 12 else 0.0


def tree_cpu_seconds() -> float:
    """Processor time (s) of this process and of all it started, ended and waited for or running.

    What a child left unwaited by its own parent is missing, and time moves from the running to the
    waited in steps of 1/100 s: a difference is exact to about that.
    """
    ended = os.times()
    running = sum(cpu_seconds(pid) for pid in descendants(os.getpid()))
    return time.process_time() + ended.children_user + ended.children_system + running


def process_age() -> float:
    """Seconds since this process was started by its parent, to 1/100 s; 0 where unknown."""
    fields = _stat(os.getpid())
    if len(fields) < 20 or not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / TICK)


def machine_busy_seconds() -> float:
    """Time (s) that the processors this process may use were not idle, from an arbitrary zero.

    It is wall time minus idle time, as idle time is kept exactly while busy time is sampled at the
    scheduler's tick. /proc prints it in 1/100 s, so a difference is exact to about 0.01 s. Time
    that a hypervisor gave to other machines counts as busy. Without /proc/stat it is 0.
    """
    usable = allowed_cores()
    now = time.monotonic()
    together, single, apart = 0, [], False
    for line in _read(f"{PROC}/stat").splitlines():
        name, *fields = line.split()
        if not name.startswith(b"cpu") or len(fields) < 5:
            break
        idle = int(fields[3]) + int(fields[4])
        if name == b"cpu":
            together = idle
        elif int(name[3:]) in usable:
            single.append(idle)
        else:
            apart = True
    if not single:
        return 0.0
    # The kernel's own sum is rounded once, a sum of single processors once for each of them.
    return now * len(single) - (sum(single) if apart else together) / TICK


def others_cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time (s) used by everything but `pids`, from an arbitrary zero.

    A difference is exact to about 0.01 s, so it may come out slightly below zero. The set has to be
    the same in both readings, and none of it may end between them.
    """
    busy = machine_busy_seconds()
    return busy - sum(cpu_seconds(pid) for pid in pids) if busy else 0.0


def run_queue_wait(pid: int) -> float:
    """Time (s) in which threads of the process were ready and waited for a processor.

    The sum over its living threads: a thread that ends takes its share away.
    """
    total = 0
    for thread in _entries(f"{PROC}/{pid}/task"):
        fields = _read(f"{PROC}/{pid}/task/{thread}/schedstat").split()
        total += int(fields[1]) if len(fields) > 1 else 0
    return total * 1e-9


def minor_faults(pid: int) -> int:
    """Page faults served without reading a disk, all threads together."""
    if pid == os.getpid():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    fields = _stat(pid)
    return int(fields[7]) if len(fields) > 7 else 0


def resident(pid: int | None = None) -> int:
    """Resident set size (bytes) of a process, this one unless named."""
    fields = _read(f"{PROC}/{pid or os.getpid()}/statm").split()
    return int(fields[1]) * PAGE if len(fields) > 1 else 0


def peak_rss(pid: int | None = None) -> int:
    """The largest resident set size (bytes) since start or `reset_peak`.

    VmHWM rather than `ru_maxrss`, which a child inherits from its parent.
    """
    return _kilobytes(f"{PROC}/{pid or os.getpid()}/status", b"VmHWM:")


def reset_peak() -> bool:
    """Make `peak_rss` of this process start anew; False where the kernel does not let it."""
    with suppress(OSError), open(f"{PROC}/self/clear_refs", "wb", 0) as file:  # noqa: PTH123
        file.write(b"5")
        return True
    return False


def pss(pid: int) -> int:
    """Proportional set size (bytes): shared pages count in part. Resident size where unreadable."""
    return _kilobytes(f"{PROC}/{pid}/smaps_rollup", b"Pss:") or resident(pid)


def tree_pss(root: int) -> int:
    """Proportional set size (bytes) of a process and everything it started, together."""
    return sum(pss(pid) for pid in [root, *descendants(root)])


def tree_resident(root: int) -> int:
    """Resident set sizes (bytes) of a process and everything it started, added up.

    Much cheaper than `tree_pss`, and more than it where pages are shared.
    """
    return sum(resident(pid) for pid in [root, *descendants(root)])


def _kilobytes(path: str, label: bytes) -> int:
    for line in _read(path).splitlines():
        if line.startswith(label):
            return int(line.split()[1]) << 10
    return 0


def descendants(root: int) -> list[int]:
    """Children of a process, their children and so on; parents come first.

    A child whose own parent has ended belongs to nobody here: `group` still finds it.
    """
    if _entries(f"{PROC}/self/task") and not os.path.exists(_children_file(os.getpid())):  # noqa: PTH110
        return _scanned_descendants(root)
    found: list[int] = []
    waiting = [root]
    while waiting:
        pid = waiting.pop(0)
        for thread in _entries(f"{PROC}/{pid}/task"):
            children = [int(c) for c in _read(f"{PROC}/{pid}/task/{thread}/children").split()]
            found += children
            waiting += children
    return found


def _children_file(pid: int) -> str:
    return f"{PROC}/{pid}/task/{pid}/children"


def _scanned_descendants(root: int) -> list[int]:
    """`descendants` from everybody's parent, for kernels that do not list children."""
    children: dict[int, list[int]] = {}
    for pid, fields in _all_stats():
        children.setdefault(int(fields[1]), []).append(pid)
    found, waiting = [], [root]
    while waiting:
        for pid in children.get(waiting.pop(0), []):
            found.append(pid)
            waiting.append(pid)
    return found


def group(number: int) -> list[int]:
    """Every process of a process group, orphans included."""
    return [pid for pid, fields in _all_stats() if int(fields[2]) == number]


def _all_stats() -> list[tuple[int, list[bytes]]]:
    pids = [int(name) for name in _entries(PROC) if name.isdigit()]
    return [(pid, fields) for pid in pids if len(fields := _stat(pid)) > 2]


class Reading:
    """The counters at the start of a block, for this process and `pids` that work for it."""

    def __init__(self, pids: Iterable[int] = ()) -> None:
        self._own = (os.getpid(), *pids)
        self._start = self._counters()
        self._wall = time.perf_counter()

    def _counters(self) -> tuple[int, float, float]:
        faults = sum(minor_faults(pid) for pid in self._own)
        waited = sum(run_queue_wait(pid) for pid in self._own)
        return faults, others_cpu_seconds(self._own), waited

    def since(self) -> tuple[float, int, float, float]:
        """What has passed since: wall time (s), minor faults, time of others (s), waiting (s).

        Time of others and waiting are never below zero: see `others_cpu_seconds`.
        """
        wall = time.perf_counter() - self._wall
        faults, others, waited = self._counters()
        start = self._start
        return wall, faults - start[0], max(0.0, others - start[1]), max(0.0, waited - start[2])


def gaps() -> list[str]:
    """Figures that this kernel does not keep, one sentence each; empty on an ordinary Linux."""
    own = os.getpid()
    needed = {
        "stat": "Processor time of other processes is not known here: /proc/stat cannot be read.",
        f"{own}/task/{own}/schedstat": "Waiting for a processor is not known here: "
        "/proc/PID/schedstat cannot be read.",
        f"{own}/smaps_rollup": "Memory is given as resident size: /proc/PID/smaps_rollup "
        "cannot be read.",
        f"{own}/status": "Peak memory is not known here: /proc/PID/status cannot be read.",
    }
    return [words for path, words in needed.items() if not _read(f"{PROC}/{path}")]
