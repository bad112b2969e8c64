# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a namespace imposes on its pods: quotas and limit ranges.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations


def namespace_evidence(raw_quotas=(), raw_limit_ranges=()):
    """``{quotas: [{name, hard, used, scopes}], limit_ranges: [{name, limits}]}``, ordered by name.

    Quantities stay as Kubernetes gives them; ``limits`` keep the API's own field names
    (type, default, defaultRequest, min, max, maxLimitRequestRatio).
    """
    return {
        "quotas": sorted((_quota(item) for item in raw_quotas), key=lambda item: item["name"] or ""),
        "limit_ranges": sorted(
            (_limit_range(item) for item in raw_limit_ranges), key=lambda item: item["name"] or ""
        ),
    }


def _quota(raw):
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    selector = (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return {
        "name": (raw.get("metadata") or {}).get("name"),
        "hard": status.get("hard") or spec.get("hard") or {},
        "used": status.get("used") or {},
        "scopes": list(spec.get("scopes") or []) + [item.get("scopeName") for item in selector],
    }


def _limit_range(raw):
    return {
        "name": (raw.get("metadata") or {}).get("name"),
        "limits": (raw.get("spec") or {}).get("limits") or [],
    }
