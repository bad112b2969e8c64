# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files in and for a container: cgroup counters, /dev/shm and GPU memory by exec, and mounted config files.

exec runs cat, df and nvidia-smi only, and only where a container has memory to spare.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

from ..quantities import MIB, quantity_bytes
from .cgroup import V1_FILES, V2_FILES, parse_cgroup
from .client import ApiError

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

_FULL = 0.9
_GPU_FIELDS = ("index", "uuid", "name", "memory.total", "memory.used", "memory.free")
_NVIDIA_SMI = ["nvidia-smi", "--query-gpu=" + ",".join(_GPU_FIELDS), "--format=csv,noheader,nounits"]


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
    """Fill the running attempt's cgroup, the pod's shm use and the node's GPUs, in place.

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
    if node is not None and not node["gpus"]:
        node["gpus"] = parse_gpus(_output(run, _NVIDIA_SMI) or "")


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


def parse_gpus(printed):
    """``[{index, uuid, name, total, used, free}]`` (bytes) of nvidia-smi's CSV; ``[N/A]`` becomes None.

    Inside a container ``used`` is the whole GPU's, including other tenants.
    """
    found = []
    for line in printed.splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) != len(_GPU_FIELDS):
            continue
        sizes = [int(value) * MIB if value.isdecimal() else None for value in values[3:]]
        found.append(
            {
                "index": int(values[0]) if values[0].isdecimal() else None,
                "uuid": values[1],
                "name": values[2],
                "total": sizes[0],
                "used": sizes[1],
                "free": sizes[2],
            }
        )
    return found


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
