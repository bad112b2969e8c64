// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func recorded(t *testing.T) *table {
	t.Helper()
	table, err := loadTable(startupsJSON)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestTableHasNoContradiction(t *testing.T) {
	if err := recorded(t).withoutContradiction(); err != nil {
		t.Error(err)
	}
}

func TestRowsAreComplete(t *testing.T) {
	ids := map[string]bool{}
	for _, r := range recorded(t).Rows {
		if r.ID == "" || ids[r.ID] || r.Source == "" || r.Version == "" || r.Model == "" || r.GPU == "" || r.TP < 1 || r.KVCacheDtype == "" {
			t.Errorf("row %q lacks a name, a source or a key", r.ID)
		}
		ids[r.ID] = true
		if _, known := failures[r.Outcome]; !known && r.Outcome != serves {
			t.Errorf("row %s: unknown outcome %q", r.ID, r.Outcome)
		}
		if (r.Outcome == weightsOOM || r.Outcome == graphOOM || r.Outcome == warmupOOM) && r.TorchOOM == "" {
			t.Errorf("row %s: an OOM without its text", r.ID)
		}
	}
}

const (
	vl     = "Qwen/Qwen3-VL-30B-A3B-Instruct "
	llama  = "meta-llama/Llama-3.1-8B-Instruct "
	llama7 = "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic "
	moe    = "Qwen/Qwen3-30B-A3B -tp 4 "
	awq    = "Qwen/Qwen2.5-32B-Instruct-AWQ -tp 2 "
)

func TestAsk(t *testing.T) {
	const missing = "not recorded"
	h100 := "H100 80GB"
	for _, test := range []struct {
		args, gpu, version, want string
	}{
		// A length fails, a shorter one serves, and nobody knows about those in between.
		{vl, "", "0.11.0", "kv_max_len"},
		{vl + "--max-model-len 300000", "", "0.11.0", "kv_max_len"},
		{vl + "--max-model-len 200000", "", "0.11.0", missing},
		{vl + "--max-model-len 81920", "", "0.11.0", "serves"},
		// What vLLM called possible in the failure, at that utilization only.
		{vl + "--max-model-len 87840", "", "0.11.0", "serves"},
		{vl + "--max-model-len 87841", "", "0.11.0", missing},
		{vl + "--max-model-len 87840 --gpu-memory-utilization 0.89", "", "0.11.0", missing},
		{vl + "--max-model-len 87840 --gpu-memory-utilization 0.91", "", "0.11.0", missing},
		{vl + "--max-model-len 4096", "", "0.11.0", "serves"},
		// The length check fails at lower utilizations too, graph capture at higher ones.
		{vl + "--gpu-memory-utilization 0.5", "", "0.11.0", "kv_max_len"},
		{vl + "--gpu-memory-utilization 0.97 --max-model-len 100000", "", "0.11.0", "graph_capture_oom"},
		{vl + "--gpu-memory-utilization 0.93 --max-model-len 100000", "", "0.11.0", missing},
		{vl + "--gpu-memory-utilization 0.95 --max-model-len 81920", "", "0.11.0", missing},
		// The default of 0.20 and later is another utilization.
		{vl, "", "0.22.1", missing},
		// What a row does not have counts only for the default.
		{vl + "--max-num-seqs 16", "", "0.11.0", missing},
		// Between two utilizations that serve.
		{llama + "--max-model-len 8192 --gpu-memory-utilization 0.92", h100, "0.11.0", "serves"},
		{llama + "--max-model-len 32768 --gpu-memory-utilization 0.92", h100, "0.11.0", missing},
		{llama + "--max-model-len 8192 --gpu-memory-utilization 0.96", h100, "0.11.0", missing},
		{llama + "--max-model-len 8192 --gpu-memory-utilization 0.95 --max-num-seqs 64 --enforce-eager", h100, "0.11.0", "serves"},
		{llama + "--max-model-len 8192 --gpu-memory-utilization 0.95 --max-num-seqs 2048", h100, "0.11.0", missing},
		{llama + "--max-model-len 8192 --gpu-memory-utilization 0.95 --kv-cache-dtype fp8", h100, "0.11.0", "serves"},
		// More than one GPU in the table, and none named.
		{llama + "--max-model-len 8192 --gpu-memory-utilization 0.95", "", "0.11.0", missing},
		// The key: parallel size, quantization, flags that no row has.
		{llama7 + "--max-model-len 16000 --gpu-memory-utilization 0.9", h100, "0.11.0", "kv_no_blocks"},
		{llama7 + "--max-model-len 16000 --gpu-memory-utilization 0.9 -tp 2", h100, "0.11.0", "serves"},
		{llama7 + "--max-model-len 16000 --gpu-memory-utilization 0.9 -tp 4", h100, "0.11.0", missing},
		{llama + "--max-model-len 8192 --gpu-memory-utilization 0.95 --quantization fp8", h100, "0.11.0", missing},
		{llama + "--max-model-len 8192 --gpu-memory-utilization 0.95 --cpu-offload-gb 8", h100, "0.11.0", missing},
		{llama + "--max-model-len 8192 --gpu-memory-utilization 0.95 --dtype auto", h100, "0.11.0", "serves"},
		// Eager mode is easier than graphs.
		{moe + "--max-model-len 8192 --gpu-memory-utilization 0.7", "", "0.8.5", "graph_capture_oom"},
		{moe + "--max-model-len 8192 --gpu-memory-utilization 0.9", "", "0.8.5", "graph_capture_oom"},
		{moe + "--max-model-len 8192 --gpu-memory-utilization 0.6", "", "0.8.5", missing},
		{moe + "--max-model-len 1024 --max-num-seqs 1 --enforce-eager", "", "0.8.5", "serves"},
		{awq + "--max-model-len 15000 --gpu-memory-utilization 0.78 --max-num-seqs 1024", "", "0.9.1", "warmup_oom"},
		{awq + "--max-model-len 15000 --gpu-memory-utilization 0.78", "", "0.9.1", missing},
		// Neither lengths nor utilizations help where the weights or another process fill the card.
		{"deepseek-ai/DeepSeek-R1 --max-model-len 128 --gpu-memory-utilization 0.3", "", "0.11.0", "gpu_weights_oom"},
		{"meta-llama/Llama-3.1-8B --max-model-len 128", "", "0.11.0", "gpu_free_below_util"},
		{"meta-llama/Llama-3.1-8B --gpu-memory-utilization 0.5", "", "0.11.0", missing},
		{"nobody/knows", "", "0.11.0", missing},
	} {
		f, err := parseFlags(strings.Fields(test.args))
		if err != nil {
			t.Fatal(err)
		}
		table := recorded(t)
		got, err := table.ask(f.question(table, mustRelease(test.version), test.gpu))
		outcome := string(got.outcome)
		if _, ok := err.(notRecorded); ok {
			outcome = missing
		} else if err != nil {
			t.Errorf("%s: %v", test.args, err)
			continue
		}
		if outcome != test.want {
			t.Errorf("%s: %s, wanted %s (%v)", test.args, outcome, test.want, err)
		}
	}
}

func TestContradictionsAreRefused(t *testing.T) {
	const key = `"version": "1", "source": "s", "model": "m", "gpu": "g", "tp": 1, "kv_cache_dtype": "auto", `
	for name, rows := range map[string]string{
		"a longer one serves at that utilization": `{` + key + `"id": "a", "gpu_memory_utilization": 0.9, "max_model_len": 100, "outcome": "kv_max_len"},
			{` + key + `"id": "b", "gpu_memory_utilization": 0.9, "max_model_len": 200, "outcome": "serves"}`,
		"a lower utilization serves": `{` + key + `"id": "a", "gpu_memory_utilization": 0.9, "outcome": "kv_no_blocks"},
			{` + key + `"id": "b", "gpu_memory_utilization": 0.8, "outcome": "serves"}`,
		"a higher utilization serves": `{` + key + `"id": "a", "gpu_memory_utilization": 0.8, "outcome": "graph_capture_oom"},
			{` + key + `"id": "b", "gpu_memory_utilization": 0.9, "outcome": "serves"}`,
		"a failure between two that serve": `{` + key + `"id": "a", "gpu_memory_utilization": 0.8, "outcome": "serves"},
			{` + key + `"id": "b", "gpu_memory_utilization": 0.85, "outcome": "graph_capture_oom"},
			{` + key + `"id": "c", "gpu_memory_utilization": 0.9, "outcome": "serves"}`,
		"weights that fit once": `{` + key + `"id": "a", "gpu_memory_utilization": 0.9, "max_model_len": 500, "outcome": "gpu_weights_oom"},
			{` + key + `"id": "b", "gpu_memory_utilization": 0.5, "max_model_len": 100, "outcome": "serves"}`,
		"what vLLM called possible fails": `{` + key + `"id": "a", "gpu_memory_utilization": 0.9, "max_model_len": 500, "outcome": "kv_max_len", "estimated_max_len": 200},
			{` + key + `"id": "b", "gpu_memory_utilization": 0.9, "max_model_len": 100, "outcome": "graph_capture_oom"}`,
		"eager fails, graphs serve": `{` + key + `"id": "a", "gpu_memory_utilization": 0.9, "enforce_eager": true, "outcome": "kv_no_blocks"},
			{` + key + `"id": "b", "gpu_memory_utilization": 0.9, "enforce_eager": false, "outcome": "serves"}`,
	} {
		var broken table
		if err := json.Unmarshal([]byte(`{"rows": [`+rows+`]}`), &broken); err != nil {
			t.Fatal(err)
		}
		if err := broken.withoutContradiction(); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}
