module vllm_runbook/tests/cluster/programs/engine

go 1.24
