// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"strings"
)

// The table of vLLM's words by version range: an entry holds from its release to the next one. Parts in braces vary.
// The texts are those of vLLM's sources. A place has the file that logs the line; its line number is that of one
// release of the range where a public log shows one, and only looks like one elsewhere. Nobody should read it.

// oldest is the first release that has an entry everywhere below.
const oldest = "0.8.5"

type message struct {
	level string
	place ranges[string]
	text  ranges[string]
}

var utilizationDefault = ranges[float64]{{oldest, 0.9}, {"0.20.0", 0.92}}

// Who speaks, as the start of a line. A worker of a single GPU lives in the engine core.
var prefixes = struct{ api, engine, worker ranges[string] }{
	api:    ranges[string]{{oldest, ""}, {"0.10.1", "(APIServer pid={pid}) "}},
	engine: ranges[string]{{oldest, ""}, {"0.10.0", "(EngineCore_0 pid={pid}) "}, {"0.10.2", "(EngineCore_DP0 pid={pid}) "}, {"0.20.0", "(EngineCore pid={pid}) "}},
	worker: ranges[string]{{oldest, "(VllmWorker rank={rank} pid={pid}) "}, {"0.10.1", "(EngineCore_0 pid={engine}) (VllmWorker TP{rank} pid={pid}) "}, {"0.10.2", "(Worker_TP{rank} pid={pid}) "}},
}

// Up to 0.30 what a child writes without the logger (tracebacks, prints, C++) gets the prefix too.
var rawIsPrefixed = ranges[bool]{{oldest, true}, {"0.31.0", false}}

// How the processes call themselves: before 0.10.1 they are plain python3.
var titles = struct{ engine, worker ranges[string] }{
	engine: ranges[string]{{oldest, "python3"}, {"0.10.1", "VLLM::EngineCore"}},
	worker: ranges[string]{{oldest, "python3"}, {"0.10.1", "VLLM::Worker_TP{rank}"}},
}

var engineName = ranges[string]{{oldest, "EngineCore_0"}, {"0.10.2", "EngineCore_DP0"}, {"0.20.0", "EngineCore"}}

var messages = map[string]message{
	"platform": {"INFO", ranges[string]{{oldest, "__init__.py:239"}, {"0.9.0", "__init__.py:244"}, {"0.10.1", "__init__.py:241"}, {"0.11.0", "__init__.py:216"}},
		ranges[string]{{oldest, "Automatically detected platform cuda."}}},
	"version": {"INFO", ranges[string]{{oldest, "api_server.py:1043"}, {"0.9.0", "api_server.py:1287"}, {"0.10.1", "api_server.py:1805"}, {"0.11.0", "api_server.py:1839"}, {"0.13.0", "api_server.py:1351"}, {"0.15.1", "utils.py:302"}, {"0.22.0", "startup.py:74"}, {"0.28.0", "startup.py:88"}},
		ranges[string]{{oldest, "vLLM API server version {version}"}, {"0.15.1", "vLLM server version {version}, serving model {model}"}}},
	"logo": {"INFO", ranges[string]{{"0.15.1", "utils.py:302"}, {"0.22.0", "startup.py:74"}, {"0.28.0", "startup.py:88"}},
		ranges[string]{{"0.15.1", "\n       █     █     █▄   ▄█\n ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}\n  █▄█▀ █     █     █     █  model   {model}\n   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀\n"}}},
	"arguments": {"INFO", ranges[string]{{oldest, "api_server.py:1044"}, {"0.9.0", "cli_args.py:309"}, {"0.10.1", "utils.py:326"}, {"0.11.0", "utils.py:233"}, {"0.13.0", "utils.py:253"}, {"0.22.0", "startup.py:96"}, {"0.28.0", "startup.py:112"}},
		ranges[string]{{oldest, "args: Namespace({arguments})"}, {"0.9.0", "non-default args: {{arguments}}"}}},
	"architecture": {"INFO", ranges[string]{{"0.10.1", "__init__.py:711"}, {"0.11.0", "model.py:547"}, {"0.13.0", "model.py:514"}, {"0.22.0", "model.py:601"}},
		ranges[string]{{"0.10.1", "Resolved architecture: {architecture}"}}},
	"max model len": {"INFO", ranges[string]{{"0.9.2", "config.py:1472"}, {"0.10.1", "__init__.py:1750"}, {"0.11.0", "model.py:1510"}, {"0.13.0", "model.py:1661"}, {"0.18.0", "model.py:1561"}, {"0.22.0", "model.py:1733"}, {"0.28.0", "model.py:1812"}},
		ranges[string]{{"0.9.2", "Using max model len {length}"}}},
	"chunked prefill": {"INFO", ranges[string]{{oldest, "config.py:2003"}, {"0.9.0", "config.py:2285"}, {"0.10.1", "scheduler.py:222"}, {"0.11.0", "scheduler.py:205"}, {"0.13.0", "scheduler.py:230"}, {"0.22.0", "scheduler.py:231"}},
		ranges[string]{{oldest, "Chunked prefill is enabled with max_num_batched_tokens={tokens}."}}},
	"kv dtype": {"INFO", ranges[string]{{oldest, "config.py:1560"}, {"0.11.0", "cache.py:180"}},
		ranges[string]{{oldest, "Using fp8 data type to store kv cache."}, {"0.20.0", "Using {dtype} data type to store kv cache."}}},
	"engine": {"INFO", ranges[string]{{oldest, "core.py:58"}, {"0.9.0", "core.py:70"}, {"0.10.1", "core.py:74"}, {"0.11.0", "core.py:77"}, {"0.13.0", "core.py:93"}, {"0.18.0", "core.py:98"}, {"0.22.0", "core.py:109"}, {"0.28.0", "core.py:121"}},
		ranges[string]{{oldest, "Initializing a V1 LLM engine (v{version}) with config: {config}"}}},
	"rank": {"INFO", ranges[string]{{oldest, "parallel_state.py:1004"}, {"0.11.0", "parallel_state.py:1208"}, {"0.22.0", "parallel_state.py:1396"}},
		ranges[string]{{oldest, "rank {rank} in world size {world} is assigned as DP rank 0, PP rank 0, TP rank {rank}"}}},
	"second runner": {"INFO", ranges[string]{{"0.22.0", "gpu_worker.py:160"}},
		ranges[string]{{"0.22.0", "Using V2 Model Runner"}}},
	"load": {"INFO", ranges[string]{{oldest, "gpu_model_runner.py:1329"}, {"0.9.0", "gpu_model_runner.py:1595"}, {"0.10.1", "gpu_model_runner.py:1953"}, {"0.11.0", "gpu_model_runner.py:2602"}, {"0.13.0", "gpu_model_runner.py:3562"}, {"0.14.0", "gpu_model_runner.py:3808"}, {"0.18.0", "gpu_model_runner.py:4281"}},
		ranges[string]{{oldest, "Starting to load model {model}..."}}},
	"weights read": {"INFO", ranges[string]{{oldest, "loader.py:458"}, {"0.9.0", "default_loader.py:272"}, {"0.11.0", "default_loader.py:267"}, {"0.13.0", "default_loader.py:308"}, {"0.14.0", "default_loader.py:291"}},
		ranges[string]{{oldest, "Loading weights took {seconds} seconds"}}},
	"weights": {"INFO", ranges[string]{{oldest, "gpu_model_runner.py:1347"}, {"0.9.0", "gpu_model_runner.py:1624"}, {"0.10.1", "gpu_model_runner.py:2007"}, {"0.11.0", "gpu_model_runner.py:2653"}, {"0.13.0", "gpu_model_runner.py:3659"}, {"0.14.0", "gpu_model_runner.py:3905"}, {"0.20.0", "gpu_model_runner.py:5405"}},
		ranges[string]{{oldest, "Model loading took {gib} GiB and {seconds} seconds"}, {"0.11.1", "Model loading took {gib} GiB memory and {seconds} seconds"}}},
	"weights, second runner": {"INFO", ranges[string]{{"0.22.0", "model_runner.py:318"}},
		ranges[string]{{"0.22.0", "Model loading took {gib} GiB and {seconds} seconds"}, {"0.28.0", "Model loading took {gib} GiB memory and {seconds} seconds"}}},
	"dynamo": {"INFO", ranges[string]{{oldest, "backends.py:430"}, {"0.9.0", "backends.py:469"}, {"0.10.1", "backends.py:559"}, {"0.13.0", "backends.py:643"}, {"0.14.0", "backends.py:704"}},
		ranges[string]{{oldest, "Dynamo bytecode transform time: {seconds} s"}}},
	"compiled": {"INFO", ranges[string]{{oldest, "monitor.py:33"}, {"0.9.0", "monitor.py:34"}},
		ranges[string]{{oldest, "torch.compile takes {seconds} s in total"}, {"0.18.0", "Initial profiling/warmup run took {seconds} s"}}},
	"available": {"INFO", ranges[string]{{"0.9.1", "gpu_worker.py:227"}, {"0.10.1", "gpu_worker.py:276"}, {"0.11.0", "gpu_worker.py:298"}, {"0.13.0", "gpu_worker.py:375"}, {"0.18.0", "gpu_worker.py:456"}, {"0.20.0", "gpu_worker.py:462"}, {"0.27.0", "gpu_worker.py:563"}, {"0.29.0", "gpu_worker.py:642"}},
		ranges[string]{{"0.9.1", "Available KV cache memory: {gib} GiB"}}},
	"kv size": {"INFO", ranges[string]{{oldest, "kv_cache_utils.py:634"}, {"0.9.0", "kv_cache_utils.py:715"}, {"0.10.0", "kv_cache_utils.py:833"}, {"0.11.0", "kv_cache_utils.py:1087"}, {"0.13.0", "kv_cache_utils.py:1291"}, {"0.18.0", "kv_cache_utils.py:1314"}, {"0.20.0", "kv_cache_utils.py:1710"}},
		ranges[string]{{oldest, "GPU KV cache size: {tokens} tokens"}, {"0.28.0", ""}}},
	"concurrency": {"INFO", ranges[string]{{oldest, "kv_cache_utils.py:637"}, {"0.9.0", "kv_cache_utils.py:719"}, {"0.10.0", "kv_cache_utils.py:837"}, {"0.11.0", "kv_cache_utils.py:1091"}, {"0.13.0", "kv_cache_utils.py:1296"}, {"0.18.0", "kv_cache_utils.py:1319"}, {"0.20.0", "kv_cache_utils.py:1711"}},
		ranges[string]{{oldest, "Maximum concurrency for {length} tokens per request: {times}x"}, {"0.28.0", ""}}},
	"kv size and concurrency": {"INFO", ranges[string]{{"0.28.0", "kv_cache_utils.py:1910"}},
		ranges[string]{{"0.28.0", "GPU KV cache size: {tokens} tokens, Maximum concurrency for {length} tokens per request: {times}x"}}},
	"graphs": {"INFO", ranges[string]{{oldest, "gpu_model_runner.py:1686"}, {"0.9.0", "gpu_model_runner.py:2048"}, {"0.11.0", "gpu_model_runner.py:3480"}, {"0.13.0", "gpu_model_runner.py:4587"}},
		ranges[string]{{oldest, "Graph capturing finished in {seconds} secs, took {gib} GiB"}}},
	"ready": {"INFO", ranges[string]{{oldest, "core.py:159"}, {"0.9.0", "core.py:171"}, {"0.11.0", "core.py:210"}, {"0.13.0", "core.py:259"}},
		ranges[string]{{oldest, "init engine (profile, create kv cache, warmup model) took {seconds} seconds"}, {"0.20.0", "init engine (profile, create kv cache, warmup model) took {seconds} s (compilation: {compile} s)"}}},
	"listen": {"INFO", ranges[string]{{oldest, "api_server.py:1090"}, {"0.9.0", "api_server.py:1336"}, {"0.10.1", "api_server.py:1880"}, {"0.13.0", "api_server.py:1099"}},
		ranges[string]{{oldest, "Starting vLLM API server on http://{address}"}, {"0.9.0", "Starting vLLM API server 0 on http://{address}"}, {"0.18.0", "Starting vLLM server on http://{address}"}}},
	"stats": {"INFO", ranges[string]{{oldest, "loggers.py:111"}, {"0.9.0", "loggers.py:118"}, {"0.13.0", "loggers.py:248"}},
		ranges[string]{{oldest, "Engine 000: Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: {generation} tokens/s, Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: {usage}%, Prefix cache hit rate: 0.0%"}}},

	// Failures. Their place is the one of the record that carries the traceback.
	"engine failed": {"ERROR", ranges[string]{{oldest, "core.py:396"}, {"0.9.0", "core.py:515"}, {"0.10.1", "core.py:700"}, {"0.11.0", "core.py:708"}, {"0.13.0", "core.py:866"}, {"0.22.0", "core.py:1104"}, {"0.28.0", "core.py:1188"}},
		ranges[string]{{oldest, "EngineCore failed to start."}}},
	"engine fatal": {"ERROR", ranges[string]{{oldest, "core.py:398"}, {"0.9.0", "core.py:517"}, {"0.10.1", "core.py:702"}, {"0.11.0", "core.py:710"}, {"0.13.0", "core.py:866"}, {"0.22.0", "core.py:1113"}, {"0.28.0", "core.py:1197"}},
		ranges[string]{{oldest, "EngineCore encountered a fatal error."}}},
	"worker failed": {"ERROR", ranges[string]{{oldest, "multiproc_executor.py:435"}, {"0.9.0", "multiproc_executor.py:492"}, {"0.10.1", "multiproc_executor.py:560"}, {"0.11.0", "multiproc_executor.py:597"}, {"0.13.0", "multiproc_executor.py:772"}, {"0.18.0", "multiproc_executor.py:783"}},
		ranges[string]{{oldest, "WorkerProc failed to start."}}},
	"worker exception": {"ERROR", ranges[string]{{oldest, "multiproc_executor.py:470"}, {"0.9.0", "multiproc_executor.py:527"}, {"0.10.1", "multiproc_executor.py:596"}, {"0.11.0", "multiproc_executor.py:671"}, {"0.13.0", "multiproc_executor.py:822"}, {"0.18.0", "multiproc_executor.py:932"}},
		ranges[string]{{oldest, "WorkerProc hit an exception."}}},
	"worker died": {"ERROR", ranges[string]{{oldest, "multiproc_executor.py:123"}, {"0.9.0", "multiproc_executor.py:140"}, {"0.11.0", "multiproc_executor.py:230"}, {"0.18.0", "multiproc_executor.py:261"}},
		ranges[string]{{oldest, "Worker proc {name} died unexpectedly, shutting down executor."}, {"0.26.0", "Worker proc {name} died unexpectedly (exit code: {code}), shutting down executor."}}},
	"core died": {"ERROR", ranges[string]{{"0.10.1", "core_client.py:562"}, {"0.13.0", "core_client.py:600"}},
		ranges[string]{{"0.10.1", "Engine core proc {name} died unexpectedly, shutting down client."}, {"0.20.0", ""}}},
	"client cleanup": {"ERROR", ranges[string]{{"0.23.0", "core_client.py:705"}},
		ranges[string]{{"0.23.0", "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup"}}},
	"output handler": {"ERROR", ranges[string]{{oldest, "async_llm.py:399"}, {"0.9.0", "async_llm.py:420"}, {"0.11.0", "async_llm.py:480"}, {"0.13.0", "async_llm.py:525"}},
		ranges[string]{{oldest, "AsyncLLM output_handler failed."}}},
	"model hint": {"ERROR", ranges[string]{{"0.13.0", "gpu_model_runner.py:3680"}, {"0.20.0", "gpu_model_runner.py:4957"}},
		ranges[string]{{"0.13.0", "Failed to load model - not enough GPU memory. Try lowering --gpu-memory-utilization to free memory for weights, increasing --tensor-parallel-size, or using --quantization. See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more tips. (original error: {error})"}}},
	"shutdown signal": {"INFO", ranges[string]{{"0.23.0", "core.py:1240"}},
		ranges[string]{{"0.23.0", "[shutdown] EngineCore: trigger received signal=SIGTERM"}}},
	"shutdown mode": {"INFO", ranges[string]{{"0.23.0", "core.py:1251"}},
		ranges[string]{{"0.23.0", "[shutdown] EngineCore: start mode=abort timeout=0s"}}},
}

// failureTexts are the last lines of tracebacks.
var failureTexts = map[string]ranges[string]{
	"no blocks": {
		{oldest, "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."},
		{"0.13.0", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine. See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."},
		{"0.22.0", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine (this flag also controls CPU memory reservation on the CPU backend, despite its name). See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."},
	},
	"max len": {
		{oldest, "ValueError: To serve at least one request with the models's max seq len ({length}), ({need} GiB KV cache is needed, which is larger than the available KV cache memory ({available} GiB).{estimate}Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."},
		{"0.13.0", "ValueError: To serve at least one request with the models's max seq len ({length}), ({need} GiB KV cache is needed, which is larger than the available KV cache memory ({available} GiB).{estimate}Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine. See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."},
		{"0.22.0", "ValueError: To serve at least one request with the model's max seq len ({length}), ({need} GiB KV cache is needed, which is larger than the available KV cache memory ({available} GiB).{estimate}Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or decreasing `max_model_len` when initializing the engine. See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."},
	},
	"estimate": {
		{oldest, "Based on the available memory, the estimated maximum model length is {estimate}. "},
		{"0.9.1", " Based on the available memory, the estimated maximum model length is {estimate}. "},
	},
	"free": {
		{"0.9.1", "ValueError: Free memory on device ({free}/{total} GiB) on startup is less than desired GPU memory utilization ({util}, {requested} GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."},
		{"0.14.0", "ValueError: Free memory on device cuda:0 ({free}/{total} GiB) on startup is less than desired GPU memory utilization ({util}, {requested} GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."},
	},
	"sampler": {
		{oldest, "RuntimeError: CUDA out of memory occurred when warming up sampler with {requests} dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine."},
	},
	"shm space": {
		{"0.27.0", "RuntimeError: Insufficient space in {dir}: {need} MiB required, {free} MiB free. Increase {dir} (e.g. --shm-size or --ipc=host)."},
		{"0.31.0", "RuntimeError: Insufficient space in {dir} for shared-memory allocation: {need} MiB required, {free} MiB free. Increase {dir} (e.g. --shm-size or --ipc=host)."},
	},
	"core init": {
		{oldest, "RuntimeError: Engine core initialization failed. See root cause above."},
		{"0.9.0", "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {procs}"},
	},
	"worker init": {
		{oldest, "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause."},
	},
	"engine dead": {
		{oldest, "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."},
	},
}

// torchTail is how PyTorch ends its text of an OOM, by the torch that a vLLM release pins.
var torchTail = ranges[string]{
	{oldest, " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"},
	{"0.17.0", " If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"},
	{"0.20.0", " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"},
}

// gibFormat: two decimals up to 0.13, then what Python's round(x, 2) prints.
var gibFormat = ranges[func(float64) string]{{oldest, twoDecimals}, {"0.14.0", pythonFloat}}

// weightsFormat has four decimals up to 0.13.
var weightsFormat = ranges[func(float64) string]{{oldest, fourDecimals}, {"0.14.0", pythonFloat}}

// fromEveryWorker: up to 0.11.0 each rank prints its memory lines, later the first one does.
var fromEveryWorker = ranges[bool]{{oldest, true}, {"0.11.1", false}}

// secretsHidden: from 0.29 the argument line shows *** in place of a secret.
var secretsHidden = ranges[bool]{{oldest, false}, {"0.29.0", true}}

// secondRunner is the release from which an architecture runs on the second model runner.
var secondRunner = map[string]string{
	"Qwen3ForCausalLM": "0.22.0", "LlamaForCausalLM": "0.23.0", "MistralForCausalLM": "0.23.0", "Qwen2ForCausalLM": "0.25.0",
}

const secondRunnerForAll = "0.29.0"

func runsSecond(v release, architecture string, quantized bool) bool {
	since, named := secondRunner[architecture]
	if !named {
		since = secondRunnerForAll
	}
	if quantized && v.before(mustRelease("0.24.0")) {
		return false
	}
	return !v.before(mustRelease(since))
}

func twoDecimals(n float64) string  { return fmt.Sprintf("%.2f", n) }
func fourDecimals(n float64) string { return fmt.Sprintf("%.4f", n) }

// commas groups digits like Python's {n:,}.
func commas(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

type fill map[string]any

// filled puts values into the braces of a text.
func (values fill) filled(text string) string {
	pairs := make([]string, 0, 2*len(values))
	for name, value := range values {
		pairs = append(pairs, "{"+name+"}", fmt.Sprint(value))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func errorText(name string, v release, values fill) string {
	return values.filled(failureTexts[name].at(v))
}
