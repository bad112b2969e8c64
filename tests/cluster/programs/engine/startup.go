// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// engine plays one start of vLLM.
type engine struct {
	settings
	release release
	flags   *flags
	info    modelInfo
	asked   question
	answer  answer // its row is nil with STANDIN_LAW=off
	second  bool   // runs on the second model runner
	fates   []fate // those whose conditions hold
	log     *logbook
	started time.Time

	serving atomic.Bool // after "Application startup complete."
	dead    atomic.Bool // the engine core has died, the server goes on
	server  server
	held    [][]byte

	quit func(code int) // os.Exit, but for tests
}

func (e *engine) tp() int { return e.asked.tp }

func (e *engine) model() string { return e.flags.get("model") }

// start goes through vLLM's phases in order. Each prints its first lines, lasts a while and ends with its result.
func (e *engine) start() {
	e.prepare()
	e.finish()
}

func (e *engine) prepare() {
	e.announce()
	burn(e.busyThreads)
	e.initDevices()
	e.loadWeights()
	e.profile()
	e.initKV()
	e.captureGraphs()
	e.warmUp()
}

// during is the middle of a phase, where deaths and recorded failures come.
func (e *engine) during(p phase) {
	time.Sleep(e.step)
	e.suffer(p)
}

// suffer dies the deaths of a phase, or lives through those that end well.
func (e *engine) suffer(p phase) {
	for _, f := range e.fates {
		if f.phase == p {
			e.die(f)
		}
	}
}

// serveForAWhile is the time before a death in serving: some seconds, or until that many requests were answered.
func (e *engine) serveForAWhile() {
	if e.servingCount == 0 {
		time.Sleep(e.servingDelay)
		return
	}
	for e.server.finished.Load() < int64(e.servingCount) {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond) // the last answer goes out first
}

func (e *engine) announce() {
	e.log.say(nobody, "platform", nil)
	name := "version"
	if messages["logo"].text.at(e.release) != "" && os.Getenv("VLLM_DISABLE_LOG_LOGO") == "" {
		name = "logo"
	}
	e.log.say(api, name, fill{"version": e.version, "model": e.model()})
	e.log.say(api, "arguments", fill{"arguments": e.arguments()})
	if e.echo != "" {
		e.log.write(e.log.stderr, e.echo)
	}
	if e.info.Architecture != "" {
		e.log.say(api, "architecture", fill{"architecture": e.info.Architecture})
	}
	if e.asked.maxModelLen.known {
		e.log.say(api, "max model len", fill{"length": e.asked.maxModelLen.value})
	}
	if e.asked.batchedTokens.known {
		e.log.say(api, "chunked prefill", fill{"tokens": e.asked.batchedTokens.value})
	}
	if e.asked.kvCacheDtype != "auto" {
		e.log.say(api, "kv dtype", fill{"dtype": e.asked.kvCacheDtype})
	}
	e.log.say(core, "engine", fill{"version": e.version, "config": e.config()})
}

// arguments is the argument line: all of the main values up to 0.8, the given ones as a dictionary later.
func (e *engine) arguments() string {
	var parts []string
	if e.release.before(mustRelease("0.9.0")) {
		for _, d := range []struct{ name, fallback string }{
			{"host", "None"}, {"port", "8000"}, {"api_key", "None"}, {"model", "None"}, {"dtype", "'auto'"}, {"max_model_len", "None"},
			{"tensor_parallel_size", "1"}, {"pipeline_parallel_size", "1"}, {"gpu_memory_utilization", "0.9"}, {"max_num_seqs", "None"},
			{"max_num_batched_tokens", "None"}, {"enforce_eager", "False"}, {"quantization", "None"}, {"kv_cache_dtype", "'auto'"},
			{"swap_space", "4"}, {"cpu_offload_gb", "0"}, {"served_model_name", "None"},
		} {
			value := d.fallback
			if e.flags.has(d.name) {
				value = python(d.name, e.flags.values[d.name])
			}
			parts = append(parts, d.name+"="+value)
		}
		for _, name := range e.flags.order {
			if flagKinds[name] == textFlag && name != "model" && name != "host" && !strings.Contains(strings.Join(parts, " "), name+"=") {
				parts = append(parts, name+"="+python(name, e.flags.values[name]))
			}
		}
		return strings.Join(parts, ", ")
	}
	if e.flags.modelTag && !e.release.before(mustRelease("0.10.0")) {
		parts = append(parts, "'model_tag': "+python("model", e.flags.values["model"]))
	}
	for _, name := range e.flags.order {
		value := python(name, e.flags.values[name])
		if (name == "api_key" || name == "hf_token") && secretsHidden.at(e.release) {
			value = "'***'"
		}
		parts = append(parts, fmt.Sprintf("'%s': %s", name, value))
	}
	return strings.Join(parts, ", ")
}

// config is the engine's echo of its configuration, shortened to the parts that matter here.
func (e *engine) config() string {
	length := "None"
	if e.asked.maxModelLen.known {
		length = fmt.Sprint(e.asked.maxModelLen.value)
	}
	quantization := orElse(e.asked.quantization, "None")
	if e.answer.row != nil && e.answer.row.Quantization != nil {
		quantization = *e.answer.row.Quantization
	}
	eager := "False"
	if e.asked.enforceEager.value {
		eager = "True"
	}
	return fmt.Sprintf("model='%[1]s', speculative_config=None, tokenizer='%[1]s', max_seq_len=%[2]s, download_dir=None, load_format=auto, "+
		"tensor_parallel_size=%[3]d, pipeline_parallel_size=%[4]d, disable_custom_all_reduce=False, quantization=%[5]s, enforce_eager=%[6]s, "+
		"kv_cache_dtype=%[7]s, device_config=cuda, seed=0, served_model_name=%[8]s",
		e.model(), length, e.tp(), e.flags.int("pipeline_parallel_size", 1), quantization, eager, e.asked.kvCacheDtype, e.flags.served()[0])
}

func (e *engine) initDevices() {
	for rank := range e.tp() {
		e.log.say(worker(rank), "rank", fill{"rank": rank, "world": e.tp()})
	}
	e.during(phaseInit)
	if e.answer.outcome == freeBelowUtil {
		e.failGPU()
	}
}

func (e *engine) loadWeights() {
	began := time.Now()
	if e.second {
		e.log.say(worker(0), "second runner", nil)
	}
	for rank := range e.tp() {
		e.log.say(worker(rank), "load", fill{"model": e.model()})
	}
	const steps = 4
	for i := range steps {
		e.log.raw(worker(0), fmt.Sprintf("Loading safetensors checkpoint shards: %3d%% Completed | %d/%d", 100*i/steps, i, steps))
		memory, err := hold(e.hostMiB * mib / steps)
		if err != nil {
			e.log.standin("%d MiB of host memory refused: %v", e.hostMiB, err)
			e.exit(2)
		}
		e.held = append(e.held, memory)
		time.Sleep(e.step / steps)
		if i == 1 {
			if e.answer.outcome == weightsOOM {
				e.failGPU()
			}
			e.suffer(phaseLoad)
		}
	}
	e.log.raw(worker(0), fmt.Sprintf("Loading safetensors checkpoint shards: 100%% Completed | %d/%d", steps, steps))
	took := time.Since(began).Seconds()
	e.log.say(worker(0), "weights read", fill{"seconds": twoDecimals(took)})
	if r := e.answer.row; r != nil && r.WeightsGiB != nil {
		if r.LoadSeconds != nil {
			took = *r.LoadSeconds
		}
		name := "weights"
		if e.second {
			name = "weights, second runner"
		}
		e.fromWorkers(name, fill{"gib": weightsFormat.at(e.release)(*r.WeightsGiB), "seconds": fmt.Sprintf("%.6f", took)})
	}
}

// fromWorkers says a memory line from each rank, or from the first one where the release does so.
func (e *engine) fromWorkers(name string, values fill) {
	ranks := 1
	if fromEveryWorker.at(e.release) {
		ranks = e.tp()
	}
	for rank := range ranks {
		e.log.say(worker(rank), name, values)
	}
}

func (e *engine) profile() {
	began := time.Now()
	if !e.asked.enforceEager.value {
		e.log.say(worker(0), "dynamo", fill{"seconds": twoDecimals(e.step.Seconds())})
	}
	e.during(phaseProfile)
	if e.answer.outcome == profileOOM {
		e.failGPU()
	}
	if !e.asked.enforceEager.value {
		e.log.say(worker(0), "compiled", fill{"seconds": twoDecimals(time.Since(began).Seconds())})
	}
}

// figuresHold: the row's KV figures are those of the asked start. The length alone changes the line about it only,
// up to the releases in which the token count depends on it.
func (e *engine) figuresHold() (memory, tokens bool) {
	r := e.answer.row
	if r == nil {
		return false, false
	}
	alike := e.answer.exact
	if !alike {
		q := e.asked
		q.maxModelLen = axis[int]{known: true}
		if r.MaxModelLen != nil {
			q.maxModelLen = axis[int]{*r.MaxModelLen, true, true}
		}
		alike = r.sameUtilization(q) && r.sameAxes(q)
	}
	return alike, alike && (e.answer.sameLen || e.release.before(mustRelease("0.20.2")))
}

func (e *engine) initKV() {
	r := e.answer.row
	memory, tokens := e.figuresHold()
	if memory && r.AvailableKVGiB != nil {
		e.fromWorkers("available", fill{"gib": gibFormat.at(e.release)(*r.AvailableKVGiB)})
	}
	e.during(phaseKV)
	if e.answer.outcome == kvNoBlocks || e.answer.outcome == kvMaxLen {
		e.failGPU()
	}
	if !tokens || r.KVTokens == nil {
		return
	}
	values := fill{"tokens": commas(*r.KVTokens)}
	repeat := 1
	if fromEveryWorker.at(e.release) {
		repeat = e.tp()
	}
	for range repeat {
		e.log.say(core, "kv size", values)
		if r.MaxConcurrency != nil && e.answer.sameLen && e.asked.maxModelLen.known {
			values["length"], values["times"] = commas(e.asked.maxModelLen.value), twoDecimals(*r.MaxConcurrency)
			e.log.say(core, "concurrency", values)
			e.log.say(core, "kv size and concurrency", values)
		}
	}
}

func (e *engine) captureGraphs() {
	if e.asked.enforceEager.value {
		e.during(phaseGraphs)
		return
	}
	bar := "Capturing CUDA graph shapes"
	if !e.release.before(mustRelease("0.10.1")) {
		bar = "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE)"
	}
	e.log.raw(worker(0), bar+":   0%|          | 0/4")
	e.during(phaseGraphs)
	if e.answer.outcome == graphOOM {
		e.failGPU()
	}
	e.log.raw(worker(0), bar+": 100%|██████████| 4/4")
	if r := e.answer.row; r != nil && r.GraphGiB != nil && e.answer.outcome == serves {
		e.fromWorkers("graphs", fill{"seconds": fmt.Sprintf("%.0f", e.step.Seconds()), "gib": twoDecimals(*r.GraphGiB)})
	}
}

func (e *engine) warmUp() {
	e.during(phaseWarmup)
	if e.answer.outcome == warmupOOM {
		e.failGPU()
	}
	took := time.Since(e.started).Seconds()
	e.log.say(core, "ready", fill{"seconds": twoDecimals(took), "compile": twoDecimals(e.step.Seconds())})
}

func (e *engine) finish() {
	host := orElse(e.flags.get("host"), "0.0.0.0")
	port := e.flags.int("port", 8000)
	if err := e.listen(host, port); err != nil {
		e.log.raw(api, "OSError: [Errno 98] Address already in use")
		e.exit(1)
	}
	e.log.say(api, "listen", fill{"address": fmt.Sprintf("%s:%d", host, port)})
	e.log.uvicorn(fmt.Sprintf("Started server process [%d]", os.Getpid()))
	e.log.uvicorn("Waiting for application startup.")
	e.log.uvicorn("Application startup complete.")
	e.serving.Store(true)
	if slices.ContainsFunc(e.fates, func(f fate) bool { return f.phase == phaseServing }) {
		e.serveForAWhile()
		e.suffer(phaseServing)
	}
	sleepForever()
}

// exit ends the process. Children that still live are the kernel's business: PID 1 takes them along.
func (e *engine) exit(code int) {
	e.log.mutex.Lock() // no line after the last one
	e.quit(code)
}

// failGPU prints the failure that the table has for this start.
func (e *engine) failGPU() {
	r := e.answer.row
	v := e.release
	gib := gibFormat.at(v)
	switch e.answer.outcome {
	case freeBelowUtil:
		text := errorText("free", v, fill{"free": pythonFloat(*r.FreeGiB), "total": pythonFloat(*r.TotalGiB), "util": pythonFloat(e.asked.utilization.value), "requested": pythonFloat(*r.RequestedGiB)})
		if !e.answer.row.sameUtilization(e.asked) {
			e.log.standin("row %s fails here, but its error's figures are for utilization %v", r.ID, *r.Utilization)
			text = "ValueError"
		}
		e.failInWorker(0, false, []frame{{"vllm/v1/worker/gpu_worker.py", "init_device", "self.requested_memory = request_memory(init_snapshot, self.cache_config)"}, {"vllm/v1/worker/utils.py", "request_memory", "raise ValueError("}}, text)
	case weightsOOM:
		e.failInWorker(gpuOfText(r.TorchOOM), false, loadFrames, e.torchOOM(r.TorchOOM))
	case profileOOM:
		e.failInWorker(gpuOfText(r.TorchOOM), true, profileFrames, e.torchOOM(r.TorchOOM))
	case kvNoBlocks:
		e.failInCore(errorText("no blocks", v, nil))
	case kvMaxLen:
		if r.NeededKVGiB == nil || r.AvailableKVGiB == nil || !e.answer.sameLen || !e.asked.maxModelLen.known {
			e.log.standin("row %s fails here, but its error's figures are not recorded for this length", r.ID)
			e.failInCore("ValueError")
		}
		estimate := " "
		if r.EstimatedMaxLen != nil {
			estimate = errorText("estimate", v, fill{"estimate": *r.EstimatedMaxLen})
		}
		e.failInCore(errorText("max len", v, fill{"length": e.asked.maxModelLen.value, "need": gib(*r.NeededKVGiB), "available": gib(*r.AvailableKVGiB), "estimate": estimate}))
	case graphOOM:
		e.failInWorker(gpuOfText(r.TorchOOM), true, captureFrames, e.torchOOM(r.TorchOOM))
	case warmupOOM:
		text := e.torchOOM(r.TorchOOM)
		if !e.second && r.SamplerRequests != nil {
			text += "\n\nThe above exception was the direct cause of the following exception:\n\n" +
				traceback([]frame{{"vllm/v1/worker/gpu_model_runner.py", "_dummy_sampler_run", "raise RuntimeError("}}, errorText("sampler", v, fill{"requests": *r.SamplerRequests}))
		}
		e.failInWorker(gpuOfText(r.TorchOOM), true, samplerFrames, text)
	}
}

var (
	loadFrames = []frame{
		{"vllm/v1/worker/gpu_worker.py", "load_model", "self.model_runner.load_model()"},
		{"vllm/v1/worker/gpu_model_runner.py", "load_model", "self.model = model_loader.load_model("},
		{"vllm/model_executor/model_loader/base_loader.py", "load_model", "model = initialize_model(vllm_config=vllm_config,"},
		{"vllm/model_executor/layers/linear.py", "create_weights", "weight = Parameter(torch.empty(sum(output_partition_sizes),"},
	}
	profileFrames = []frame{
		{"vllm/v1/worker/gpu_worker.py", "determine_available_memory", "self.model_runner.profile_run()"},
		{"vllm/v1/worker/gpu_model_runner.py", "profile_run", "= self._dummy_run(self.max_num_tokens, is_profile=True)"},
	}
	captureFrames = []frame{
		{"vllm/v1/worker/gpu_worker.py", "compile_or_warm_up_model", "self.model_runner.capture_model()"},
		{"vllm/v1/worker/gpu_model_runner.py", "capture_model", "self._dummy_run(num_tokens)"},
	}
	samplerFrames = []frame{
		{"vllm/v1/worker/gpu_worker.py", "compile_or_warm_up_model", "self.model_runner._dummy_sampler_run("},
		{"vllm/v1/worker/gpu_model_runner.py", "_dummy_sampler_run", "sampler_output = self.sampler(logits=logits,"},
	}
	kvFrames = []frame{
		{"vllm/v1/engine/core.py", "_initialize_kv_caches", "kv_cache_configs = get_kv_cache_configs(vllm_config, kv_cache_specs,"},
		{"vllm/v1/core/kv_cache_utils.py", "check_enough_kv_cache_memory", "raise ValueError("},
	}
	requestFrames = []frame{
		{"vllm/v1/worker/gpu_model_runner.py", "_get_prompt_logprobs_dict", "logprobs = self.sampler.compute_logprobs(logits)"},
		{"vllm/v1/sample/sampler.py", "compute_logprobs", "return logits.log_softmax(dim=-1, dtype=torch.float32)"},
	}
)

// torchOOM is a recorded text with the class in front and, where it is complete, the ending of this release's torch.
func (e *engine) torchOOM(recorded string) string {
	if strings.HasSuffix(recorded, "reserved by PyTorch but unallocated.") {
		recorded += torchTail.at(e.release)
	}
	return "torch.OutOfMemoryError: " + recorded
}

// gpuOfText reads which card a recorded text is about.
func gpuOfText(recorded string) int {
	rank := 0
	if at := strings.Index(recorded, "GPU "); at >= 0 {
		_, _ = fmt.Sscanf(recorded[at:], "GPU %d", &rank)
	}
	return rank
}

// failInCore prints an exception of the engine core during a start and ends with exit code 1.
func (e *engine) failInCore(last string) {
	frames := append([]frame{{"vllm/v1/engine/core.py", "run_engine_core", "engine_core = EngineCoreProc(*args, **kwargs)"}}, kvFrames...)
	e.log.record(core, "engine failed", "EngineCore failed to start.\n"+traceback(frames, last))
	e.log.raw(core, "Process "+engineName.at(e.release)+":\n"+traceback([]frame{{"/usr/lib/python3.12/multiprocessing/process.py", "_bootstrap", "self.run()"}}, last))
	e.startFailed("{}")
}

// failInWorker prints an exception of one rank during a start, and what the others make of it.
func (e *engine) failInWorker(rank int, ready bool, frames []frame, last string) {
	rank = min(rank, e.tp()-1)
	if strings.HasPrefix(last, "torch.OutOfMemoryError") && !ready && !e.second {
		e.log.say(worker(rank), "model hint", fill{"error": strings.TrimPrefix(last, "torch.OutOfMemoryError: ")})
	}
	start := frame{"vllm/v1/engine/core.py", "run_engine_core", "engine_core = EngineCoreProc(*args, **kwargs)"}
	if e.tp() == 1 {
		e.log.record(core, "engine failed", "EngineCore failed to start.\n"+traceback(append([]frame{start}, frames...), last))
		e.log.raw(core, "Process "+engineName.at(e.release)+":\n"+traceback([]frame{{"/usr/lib/python3.12/multiprocessing/process.py", "_bootstrap", "self.run()"}}, last))
		e.startFailed("{}")
	}
	if ready {
		busy := frame{"vllm/v1/executor/multiproc_executor.py", "worker_busy_loop", "output = func(*args, **kwargs)"}
		e.log.record(worker(rank), "worker exception", "WorkerProc hit an exception.\n"+traceback(append([]frame{busy}, frames...), last))
		lines := strings.Split(last, "\n")
		_, message, _ := strings.Cut(lines[len(lines)-1], ": ")
		last = fmt.Sprintf("RuntimeError: Worker failed with error '%s', please check the stack trace above for the root cause", message)
	} else {
		e.log.record(worker(rank), "worker failed", "WorkerProc failed to start.\n"+traceback(append([]frame{{"vllm/v1/executor/multiproc_executor.py", "worker_main", "worker = WorkerProc(*args, **kwargs)"}}, frames...), last))
		last = errorText("worker init", e.release, nil)
	}
	e.log.record(core, "engine failed", "EngineCore failed to start.\n"+traceback([]frame{start}, last))
	e.startFailed("{}")
}

// startFailed is the API server's end of a failed start.
func (e *engine) startFailed(procs string) {
	e.log.raw(api, traceback([]frame{
		{"/usr/local/bin/vllm", "<module>", "sys.exit(main())"},
		{"vllm/v1/engine/utils.py", "wait_for_engine_startup", `raise RuntimeError("Engine core initialization failed. "`},
	}, errorText("core init", e.release, fill{"procs": procs})))
	e.exit(1)
}

// workerName is what the executor calls a rank.
func workerName(rank int) string { return fmt.Sprintf("VllmWorker-%d", rank) }
