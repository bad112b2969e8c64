# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log scanner's speed beside ``grep -i -E`` on the same file of ordinary serving lines, and its peak memory.

``python tests/benchmarks/scan.py [MEGABYTES [ROUNDS]]``: writes the file once (300 MB, always the same, under
``~/.cache/vllm_runbook``), then runs scanner and grep in turn and prints the medians. The scanner's time is that of
reading and scanning, without the interpreter's start, which the whole-process column holds; grep's is the process's.
"""

from __future__ import annotations

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm_runbook"
WORDS = "memory|OOM|NCCL|error|killed|died|traceback|shm"
GREP = ["grep", "-c", "-a", "-i", "-E", WORDS]
READ = 256 * 1024  # as the cluster and bundle readers feed it


def ordinary_lines(megabytes):
    """Blocks (bytes) of a serving log: mostly completions, probes and scrapes, a few refused requests, statistics."""
    chance = random.Random(20261130)
    written = second = 0
    while written < megabytes * 1_000_000:
        lines = []
        for _line in range(4000):
            client = f"10.{chance.randrange(4)}.{chance.randrange(256)}.{chance.randrange(256)}:{chance.randrange(1024, 65536)}"
            kind = chance.random()
            if kind < 0.72:
                request = f'"POST /v1/{"chat/" if kind < 0.6 else ""}completions HTTP/1.1" 200 OK'
            elif kind < 0.86:
                request = '"GET /health HTTP/1.1" 200 OK'
            elif kind < 0.92:
                request = '"GET /metrics HTTP/1.1" 200 OK'
            elif kind < 0.93:
                request = '"POST /v1/chat/completions HTTP/1.1" 400 Bad Request'
            else:
                second += 10
                lines.append(
                    f"(APIServer pid=1) INFO {11 + second // 2592000 % 2:02}-{1 + second // 86400 % 30:02} "
                    f"{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02} [loggers.py:127] Engine 000: Avg prompt "
                    f"throughput: {chance.random() * 5000:.1f} tokens/s, Avg generation throughput: {chance.random() * 900:.1f} "
                    f"tokens/s, Running: {chance.randrange(60)} reqs, Waiting: {chance.randrange(3)} reqs, GPU KV cache usage: "
                    f"{chance.random() * 90:.1f}%, Prefix cache hit rate: {chance.random() * 60:.1f}%\n"
                )
                continue
            lines.append(f"(APIServer pid=1) INFO:     {client} - {request}\n")
        block = "".join(lines).encode()
        written += len(block)
        yield block


def serving_log(megabytes):
    """The path of the log, written if it isn't there."""
    path = CACHE / f"serving-{megabytes}MB-v1.log"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with part.open("wb") as log:
            for block in ordinary_lines(megabytes):
                log.write(block)
        part.rename(path)
    return path


def scan_once(path):
    """Scan ``path`` and print what it took as JSON; in a process of its own, so that the peak is the scanner's."""
    sys.path.insert(0, str(ROOT / ".ansible" / "collections"))
    from ansible_collections.vllm_runbook.oom.plugins.module_utils.evidence.log_scan import LogScanner

    scanner = LogScanner()
    start = time.perf_counter()
    with open(path, "rb", buffering=0) as log:
        while chunk := log.read(READ):
            scanner.feed(chunk)
    excerpt = scanner.close()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {"seconds": seconds, "peak": peak, "lines": excerpt["lines"], "errors": len(excerpt["errors"])}
        )
    )


def run_scanner(path):
    start = time.perf_counter()
    shown = subprocess.run(
        [sys.executable, __file__, "--once", str(path)], check=True, capture_output=True, text=True
    ).stdout
    return dict(json.loads(shown), whole=time.perf_counter() - start)


def run_grep(path):
    start = time.perf_counter()
    subprocess.run(
        [*GREP, str(path)], check=False, capture_output=True, env=dict(os.environ, LC_ALL="C.UTF-8")
    )
    return time.perf_counter() - start


def main(megabytes=300, rounds=5):
    path, tenth = serving_log(megabytes), serving_log(max(megabytes // 10, 1))
    size = path.stat().st_size / 1e6
    run_grep(path)  # the file is in the page cache from here on
    pairs = [(run_scanner(path), run_grep(path)) for _round in range(rounds)]
    scanner = statistics.median(scan["seconds"] for scan, _grep in pairs)
    whole = statistics.median(scan["whole"] for scan, _grep in pairs)
    grep = statistics.median(seconds for _scan, seconds in pairs)
    peak, small_peak = pairs[-1][0]["peak"], run_scanner(tenth)["peak"]
    print(
        f"{size:.0f} MB of ordinary serving lines ({pairs[-1][0]['lines']} lines), medians of {rounds} rounds in turn"
    )
    print(f"  scanner             {size / scanner:7.0f} MB/s   (whole process {size / whole:.0f} MB/s)")
    print(f"  grep -c -a -i -E    {size / grep:7.0f} MB/s   {WORDS}")
    print(f"  scanner / grep      {grep / scanner:7.2f}        (target: at least 0.50)")
    print(f"  peak memory         {peak:7.1f} MiB    ({small_peak:.1f} MiB for a tenth of the log)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--once"]:
        scan_once(sys.argv[2])
    else:
        main(*map(int, sys.argv[1:3]))
