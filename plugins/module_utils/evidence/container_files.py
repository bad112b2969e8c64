# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files in and for a container: cgroup counters, /dev/shm and GPU memory by exec, and mounted config files.

exec runs cat, df and nvidia-smi only, and only where a container has memory to spare.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..quantities import quantity_bytes
from .cgroup import V1_FILES, V2_FILES, parse_cgroup
from .client import ApiError
from .nvidia_smi import GPU_QUERIES, PROCESS_FIELDS, failure, read_csv, read_process_csv

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

_FULL = 0.9
# CSV, not -q -x: the XML of eight GPUs is a megabyte and takes longer than an exec may.
_CSV = "--format=csv,noheader,nounits"
_UNKNOWN_FIELD = failure("is not a valid field to query")["error"]


def has_memory_limit(container):
    """Without a limit there is none that an exec'd process could exceed."""
    return quantity_bytes(container["resources"]["limits"].get("memory")) is not None


def reason_to_stay_out(container, metrics):
    """Why nothing should be started in a container with a memory limit, or None. metrics: its PodMetrics object."""
    limit = quantity_bytes(container["resources"]["limits"].get("memory"))
    usage = next(
        (
            quantity_bytes((item.get("usage") or {}).get("memory"))
            for item in metrics.get("containers") or []
            if item.get("name") == container["name"]
        ),
        None,
    )
    if usage is None:
        return "not entered: how much of its memory limit it uses is unknown (its PodMetrics don't name this container)"
    if usage > _FULL * limit:
        return f"not entered: it uses {usage / limit:.0%} of its memory limit"
    return None


def read_inside(run, pod, container, node=None):
    """Fill the running attempt's cgroup, the pod's shm use and the node's driver, GPUs and processes, in place.

    run(command) returns what the command prints or raises ApiError. A command that isn't there (no nvidia-smi,
    files of the other cgroup version) leaves its fields None; a refused exec raises ApiError.
    """
    files: dict[str, str | None] = {}
    for names in (V2_FILES, V1_FILES):
        for path in names:
            printed = _output(run, ["cat", path])
            if printed is None and not files:
                break
            files[path] = printed
        if files:
            break
    container["attempts"][-1]["cgroup"] = parse_cgroup(files)
    pod["shm"]["used"] = _used(_output(run, ["df", "-P", "-k", "/dev/shm"]))
    if node is not None:
        _read_gpus(run, node)


def _read_gpus(run, node):
    """Add what nvidia-smi shows in the container to the node's driver, gpus and processes.

    That is the container's GPUs, each with the memory that all its tenants use, and those processes that the container's
    PID namespace shows, often none: an empty list doesn't mean that nobody uses the GPU. Each container counts its GPUs
    from 0, so that index stays only with the first of that number.
    """
    found = _ask_gpus(run)
    if found["gpus"]:
        known = {item["uuid"] for item in node["gpus"]}
        taken = {item["index"] for item in node["gpus"]}
        added = [item for item in found["gpus"] if item["uuid"] not in known]
        for item in added:
            item["index"] = None if item["index"] in taken else item["index"]
        node["gpus"] = node["gpus"] + added
        query = ["nvidia-smi", "--query-compute-apps=" + ",".join(PROCESS_FIELDS), _CSV]
        shown = read_process_csv(_output(run, query) or "")
        node["processes"] = node["processes"] + [item for item in shown if item not in node["processes"]]
    elif found["failure"] in (None, failure("nvidia-smi: not found")):
        # No nvidia-smi in this image: nothing is known, nothing is wrong.
        return
    if not node["driver"] or node["driver"]["error"]:
        node["driver"] = found["driver"]


def _ask_gpus(run):
    """What `read_csv` makes of the widest query that this driver answers."""
    found: dict = {}
    for fields in GPU_QUERIES:
        complaint = ""
        try:
            printed = run(["nvidia-smi", "--query-gpu=" + ",".join(fields), _CSV])
        except ApiError as error:
            if error.status is not None:
                raise
            printed, complaint = "", f"nvidia-smi: {error}"
        found = read_csv(printed, fields, complaint)
        if found["gpus"] or (found["failure"] or {}).get("error") not in (None, _UNKNOWN_FIELD):
            break
    return found


def _output(run, command):
    try:
        return run(command)
    except ApiError as error:
        # An HTTP status refuses exec as a whole; without one it was this command that failed.
        if error.status is not None:
            raise
        return None


def _used(printed):
    """Bytes used, of ``df -P -k`` output."""
    fields = (printed or "").strip().splitlines()[-1:] or [""]
    columns = fields[0].split()
    return int(columns[2]) * 1024 if len(columns) >= 6 and columns[2].isdecimal() else None


def config_map_of(path, raw_pod, container):
    """``(ConfigMap name, key)`` of the file at ``path`` in a container, or None if it comes from elsewhere."""
    volumes = {item.get("name"): item for item in (raw_pod.get("spec") or {}).get("volumes") or []}
    raw: dict = next(
        (
            item
            for item in (raw_pod.get("spec") or {}).get("containers") or []
            if item.get("name") == container["name"]
        ),
        {},
    )
    best = None
    for mount in raw.get("volumeMounts") or []:
        root = (mount.get("mountPath") or "").rstrip("/")
        if (path == root or path.startswith(root + "/")) and (best is None or len(root) > len(best[0])):
            best = (root, mount)
    if best is None:
        return None
    root, mount = best
    source = (volumes.get(mount.get("name")) or {}).get("configMap")
    if not source:
        return None
    inside = "/".join(part for part in (mount.get("subPath") or "", path[len(root) :].strip("/")) if part)
    items = source.get("items")
    if items:
        key = next((item.get("key") for item in items if item.get("path") == inside), None)
        return (source.get("name"), key) if key else None
    return source.get("name"), inside


def parse_config(text, redactor):
    """A ``--config`` file as a dict, secrets redacted; None when it can't be read as one."""
    if not text or yaml is None:
        return None
    try:
        parsed = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    if not isinstance(parsed, dict):
        return None
    return {
        str(key): redactor.env_value(str(key), value) if isinstance(value, str) else value
        for key, value in parsed.items()
    }
