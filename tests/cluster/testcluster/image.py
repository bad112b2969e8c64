# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test image as an OCI archive: busybox, the engine stand-in, a replaying nvidia-smi. No registry, no builder.

One layer, and for each vLLM version a tag whose configuration tells the stand-in which version it plays.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

from . import HOME
from .node import PAUSE_IMAGE

# As they are called in the world, so that the collection recognises them as such.
VLLM_VERSIONS = ("0.8.5", "0.9.1", "0.11.0", "0.13.0", "0.19.1", "0.22.1", "0.28.0")
BUSYBOX_IMAGE = "docker.io/local/busybox:1"
_FOLDERS = ("bin", "dev", "etc", "proc", "recorded", "root", "sys", "tmp", "usr/bin", "usr/local/bin", "var")


def vllm_image(version: str) -> str:
    """The image of a version; raises KeyError for one that isn't made."""
    if version not in VLLM_VERSIONS:
        raise KeyError(f"no test image of vLLM {version}; there are {', '.join(VLLM_VERSIONS)}")
    return f"docker.io/vllm/vllm-openai:v{version}"


def write_archive(path: Path, busybox: Path, engine: Path) -> None:
    """Write the OCI layout of all images to ``path`` (tar)."""
    layer = _layer(busybox, engine)
    tags = {vllm_image(version): {"STANDIN_VLLM_VERSION": version} for version in VLLM_VERSIONS}
    tags |= {BUSYBOX_IMAGE: {}, PAUSE_IMAGE: {}}
    blobs: dict[str, bytes] = {}

    def blob(media_type: str, content: bytes) -> dict:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    manifests = []
    for tag, environment in tags.items():
        config = blob(
            "application/vnd.oci.image.config.v1+json", _config(layer, environment, pause=tag == PAUSE_IMAGE)
        )
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [blob("application/vnd.oci.image.layer.v1.tar", layer)],
        }
        described = blob(manifest["mediaType"], json.dumps(manifest).encode())
        manifests.append({**described, "annotations": {"io.containerd.image.name": tag}})
    with tarfile.open(path, "w") as archive:
        _add_file(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add_file(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": manifests}).encode())
        for digest, content in blobs.items():
            _add_file(archive, f"blobs/sha256/{digest}", content)


def _config(layer: bytes, environment: dict[str, str], pause: bool) -> bytes:
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", **environment}
    command = ["/bin/sleep", "2147483647"] if pause else ["/bin/sh"]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": [f"{name}={value}" for name, value in variables.items()], "Cmd": command},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    return json.dumps(config).encode()


def _layer(busybox: Path, engine: Path) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as layer:
        for folder in _FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o1777 if folder == "tmp" else 0o755
            layer.addfile(entry)
        _add_file(layer, "bin/busybox", busybox.read_bytes(), executable=True)
        for applet in subprocess.check_output([busybox, "--list"], text=True).split():
            if applet != "busybox":
                _add_link(layer, f"bin/{applet}", "busybox")
        _add_link(layer, "usr/bin/env", "/bin/busybox")
        _add_file(layer, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        _add_file(layer, "usr/local/bin/vllm", engine.read_bytes(), executable=True)
        # The other way to start vLLM: python3 -m vllm.entrypoints.openai.api_server
        _add_link(layer, "usr/local/bin/python3", "vllm")
        _add_file(layer, "usr/bin/nvidia-smi", (HOME / "image" / "nvidia-smi").read_bytes(), executable=True)
        recorded = HOME / "image" / "recorded"
        for path in sorted(recorded.rglob("*")):
            if path.is_file():
                _add_file(layer, f"recorded/{path.relative_to(recorded)}", path.read_bytes())
    return written.getvalue()


def _add_file(archive: tarfile.TarFile, name: str, content: bytes, executable: bool = False) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = 0o755 if executable else 0o644
    archive.addfile(entry, io.BytesIO(content))


def _add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type = tarfile.SYMTYPE
    entry.linkname = target
    archive.addfile(entry)
