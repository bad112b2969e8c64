// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// recordedOOMs are texts of public reports, by the phase in which they came; the first one is for a single GPU.
var recordedOOMs = map[phase][]string{
	// vllm-project/vllm#31273 (0.13.0); vllm-project/vllm#17835
	phaseLoad: {
		"CUDA out of memory. Tried to allocate 80.00 MiB. GPU 0 has a total capacity of 139.72 GiB of which 60.69 MiB is free. Process 691170 has 139.65 GiB memory in use. Of the allocated memory 139.21 GiB is allocated by PyTorch, and 12.81 MiB is reserved by PyTorch but unallocated.",
		"CUDA out of memory. Tried to allocate 270.00 MiB. GPU 1 has a total capacity of 21.98 GiB of which 156.94 MiB is free. Including non-PyTorch memory, this process has 21.80 GiB memory in use. Of the allocated memory 21.42 GiB is allocated by PyTorch, and 24.12 MiB is reserved by PyTorch but unallocated.",
	},
	// QwenLM/Qwen3#1387 (0.8.5)
	phaseGraphs: {
		"CUDA out of memory. Tried to allocate 150.00 MiB. GPU 1 has a total capacity of 21.99 GiB of which 39.00 MiB is free. Process 1779404 has 21.94 GiB memory in use. Of the allocated memory 15.75 GiB is allocated by PyTorch, with 35.88 MiB allocated in private pools (e.g., CUDA Graphs), and 92.31 MiB is reserved by PyTorch but unallocated.",
	},
	// vllm-project/vllm#15105 (0.8.1)
	phaseWarmup: {
		"CUDA out of memory. Tried to allocate 1.74 GiB. GPU 1 has a total capacity of 23.57 GiB of which 605.88 MiB is free. Process 133288 has 22.97 GiB memory in use. Of the allocated memory 20.21 GiB is allocated by PyTorch, with 128.00 MiB allocated in private pools (e.g., CUDA Graphs), and 185.98 MiB is reserved by PyTorch but unallocated.",
	},
	// vllm-project/vllm#34643
	phaseServing: {
		"CUDA out of memory. Tried to allocate 1.71 GiB. GPU 0 has a total capacity of 22.30 GiB of which 1.52 GiB is free. Process 291 has 248.00 MiB memory in use. Process 529 has 248.00 MiB memory in use. Process 519 has 20.28 GiB memory in use. Of the allocated memory 19.55 GiB is allocated by PyTorch, and 244.94 MiB is reserved by PyTorch but unallocated.",
	},
}

func (e *engine) recordedOOM(p phase) string {
	texts, ok := recordedOOMs[p]
	if !ok {
		return "CUDA out of memory." // a report without sizes: vllm-project/vllm#22173
	}
	return texts[min(e.tp(), len(texts))-1]
}

// Texts of public reports that belong to no phase alone.
const (
	// kyuz0/amd-strix-halo-vllm-toolboxes#2: 816 MiB are asked for while 2.53 GiB are reserved and unused
	fragmentedOOM = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 816.00 MiB. GPU 0 has a total capacity of 61.35 GiB of which 655.29 MiB is free. Of the allocated memory 57.83 GiB is allocated by PyTorch, and 2.53 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
	// vllm-project/vllm#751: another process holds 50.52 GiB; the misspelling is torch's
	neighbourOOM = "CUDA out of memory. Tried to allocate 448.00 MiB. GPU 0 has a total capacty of 79.11 GiB of which 391.12 MiB is free. Process 247 has 50.52 GiB memory in use. Process 477 has 28.19 GiB memory in use. Of the allocated memory 27.48 GiB is allocated by PyTorch, and 1.98 MiB is reserved by PyTorch but unallocated."
	// vllm-project/vllm#39874: the OOM of a MIG slice, behind an assertion of its allocator
	migAssertion = `RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/CUDACachingAllocator.cpp":1165, please report a bug to PyTorch.`
)

// die is one death of this start. It returns where the engine goes on living.
func (e *engine) die(f fate) {
	switch f.kind {
	case "host_oom":
		e.eat(int(f.argument))
	case "host_oom_child", "host_oom_child_exit0":
		e.childDies("eat", f)
	case "host_oom_child_lives":
		e.loseCore("eat", f)
	case "segv":
		e.childDies("segv", f)
	case "shm":
		e.checkShm()
		e.childDies("shm", f)
	case "shm_nccl":
		e.checkShm()
		e.reserveShmSegments(int(f.argument))
	case "shm_fill":
		e.fillShm(int(f.argument))
	case "cuda_oom":
		e.dieOfCuda(f.phase)
	case "cuda_oom_exit0":
		e.dieServing(fmt.Sprintf("EngineCore encountered a fatal error.\n%s", traceback(requestFrames, e.torchOOM(e.recordedOOM(phaseServing)))), true)
	case "fragmented":
		e.failInWorker(0, e.sized(f.phase), loadFrames, fragmentedOOM)
	case "neighbour":
		e.failInWorker(0, e.sized(f.phase), loadFrames, e.torchOOM(neighbourOOM))
	case "mig":
		e.failInWorker(0, e.sized(f.phase), kvFrames[:1], migAssertion)
	case "nccl_oom":
		e.dieOfNCCL(f.phase, ncclOOM)
	case "nccl_timeout":
		e.dieOfNCCL(f.phase, ncclTimeout)
	case "exit":
		e.exit(int(f.argument))
	case "hang":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		sleepForever()
	case "slow":
		time.Sleep(time.Duration(f.argument * float64(time.Second)))
	case "cpu":
		work(time.Duration(f.argument * float64(time.Second)))
	}
}

// sized: the weights are loaded, so that an exception comes from a worker that was ready.
func (e *engine) sized(p phase) bool { return p != phaseInit && p != phaseLoad }

// eat holds that much memory for as long as this process lives; without a need it goes on until the kernel stops it.
func (e *engine) eat(needMiB int) {
	memory, err := eat(needMiB, e.ceilingMiB)
	if err != nil {
		e.log.standin("%v", err)
		e.exit(2)
	}
	e.held = append(e.held, memory...)
}

// childDies starts a process that dies for real and goes on as vLLM does when a worker or the engine core is gone.
// It returns where the child got what it needs.
func (e *engine) childDies(task string, f fate) {
	rank, p := e.tp()-1, f.phase
	code := e.runChild(task, rank, f)
	switch {
	case code == 0:
		return
	case p == phaseServing:
		e.diePeerless(rank, code)
	case e.tp() == 1:
		e.startFailed(fmt.Sprintf("{'%s': %s}", engineName.at(e.release), code))
	case p == phaseInit || p == phaseLoad:
		e.log.record(core, "engine failed", "EngineCore failed to start.\n"+traceback([]frame{
			{"vllm/v1/engine/core.py", "run_engine_core", "engine_core = EngineCoreProc(*args, **kwargs)"},
			{"vllm/v1/executor/multiproc_executor.py", "wait_for_ready", "raise e from None"},
		}, errorText("worker init", e.release, nil)))
		e.startFailed("{}")
	default:
		e.log.say(core, "worker died", fill{"name": workerName(rank), "code": code})
		e.log.record(core, "engine failed", "EngineCore failed to start.\n"+traceback([]frame{
			{"vllm/v1/engine/core.py", "run_engine_core", "engine_core = EngineCoreProc(*args, **kwargs)"},
			{"vllm/v1/executor/multiproc_executor.py", "collective_rpc", "status, result = get_response(w, dequeue_timeout)"},
		}, "RuntimeError: cancelled"))
		e.startFailed("{}")
	}
}

// runChild is how a child ended: by a signal, or with 0 where the death has a need and the child got it.
func (e *engine) runChild(task string, rank int, f fate) death {
	pid, wait, err := spawn(task, titleOf(e.release, e.tp() == 1, rank), int(f.argument))
	if err != nil {
		e.log.standin("no child process: %v", err)
		e.exit(2)
	}
	e.log.mutex.Lock()
	if e.tp() == 1 {
		e.log.engine = pid
	} else {
		e.log.workers[rank] = pid
	}
	e.log.mutex.Unlock()
	code := wait()
	if code > 0 || code == 0 && f.argument == 0 {
		e.log.standin("the child ended with %s and not by a signal", code)
		e.exit(2)
	}
	return code
}

// diePeerless: in serving, a process is gone. vLLM's server shuts down and returns 0 (vllm-project/vllm#48966).
func (e *engine) diePeerless(rank int, code death) {
	if e.tp() > 1 {
		e.log.say(core, "worker died", fill{"name": workerName(rank), "code": code})
		e.dieServing("EngineCore encountered a fatal error.\n"+traceback([]frame{{"vllm/v1/engine/core.py", "_process_engine_step", "outputs, model_executed = self.step_fn()"}}, "RuntimeError: Executor failed."), false)
	}
	e.log.say(api, "core died", fill{"name": engineName.at(e.release)})
	e.log.say(api, "client cleanup", nil)
	e.dieServing("", false)
}

// dieServing prints a fatal error of the engine core, then the API server's end: exit code 0.
func (e *engine) dieServing(fatal string, failsRequest bool) {
	e.announceDeadCore(fatal)
	if failsRequest {
		e.log.uvicorn(`127.0.0.1:51902 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error`)
	}
	e.shutDown()
	e.exit(0)
}

func (e *engine) announceDeadCore(fatal string) {
	e.dead.Store(true)
	if fatal != "" {
		e.log.record(core, "engine fatal", fatal)
	}
	e.log.record(api, "output handler", "AsyncLLM output_handler failed.\n"+traceback([]frame{
		{"vllm/v1/engine/async_llm.py", "output_handler", "outputs = await engine_core.get_output_async()"},
	}, errorText("engine dead", e.release, nil)))
}

// loseCore: the engine core dies, and the server goes on and answers 503 (VLLM_KEEP_ALIVE_ON_ENGINE_DEATH).
func (e *engine) loseCore(task string, f fate) {
	rank := e.tp() - 1
	code := e.runChild(task, rank, f)
	if code == 0 {
		return
	}
	if f.phase != phaseServing {
		e.startFailed(fmt.Sprintf("{'%s': %s}", engineName.at(e.release), code))
	}
	if e.tp() > 1 {
		e.log.say(core, "worker died", fill{"name": workerName(rank), "code": code})
	} else {
		e.log.say(api, "core died", fill{"name": engineName.at(e.release)})
	}
	e.announceDeadCore("")
}

func (e *engine) dieOfCuda(p phase) {
	text := e.torchOOM(e.recordedOOM(p))
	switch p {
	case phaseServing:
		e.announceDeadCore("EngineCore encountered a fatal error.\n" + traceback(requestFrames, text))
		e.exit(1)
	case phaseInit, phaseLoad:
		e.failInWorker(gpuOfText(text), false, loadFrames, text)
	case phaseProfile, phaseKV:
		e.failInWorker(gpuOfText(text), true, profileFrames, text)
	case phaseGraphs:
		e.failInWorker(gpuOfText(text), true, captureFrames, text)
	default:
		e.failInWorker(gpuOfText(text), true, samplerFrames, text)
	}
}

// vllm-project/vllm#19865 (0.9.1)
const ncclOOM = `torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
Cuda failure 2 'out of memory'`

// NCCL's own words for a peer that is gone; a leader of several hosts shows them when a worker has died.
const ncclTimeout = `torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, remote process exited or there was a network error, NCCL version 2.26.2
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
Last error:
socketProgress: Connection closed by remote peer`

// vllm-project/vllm#5458
const watchdog = `[rank0]:[E ProcessGroupNCCL.cpp:563] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600086 milliseconds before timing out.
[rank0]:[E ProcessGroupNCCL.cpp:577] [Rank 0] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.
[rank0]:[E ProcessGroupNCCL.cpp:583] [Rank 0] To avoid data inconsistency, we are taking the entire process down.`

func (e *engine) dieOfNCCL(p phase, text string) {
	rank := 0
	if text == ncclTimeout {
		e.log.raw(worker(rank), watchdog)
	}
	if text == ncclOOM {
		rank = e.tp() - 1
	}
	e.failInWorker(rank, e.sized(p), []frame{
		{"vllm/distributed/device_communicators/pynccl.py", "__init__", "self.all_reduce(data)"},
		{"torch/distributed/distributed_c10d.py", "all_reduce", "work = group.allreduce([tensor], opts)"},
	}, text)
}

// checkShm is vLLM's own check from 0.27 on: room for the broadcast ring.
func (e *engine) checkShm() {
	const ringMiB = 160
	free, err := freeMiB(e.shmFolder)
	text := errorText("shm space", e.release, fill{"dir": "/dev/shm", "need": ringMiB, "free": free})
	if err != nil || text == "" || free >= ringMiB || e.tp() == 1 {
		return
	}
	frames := []frame{
		{"vllm/v1/engine/core.py", "run_engine_core", "engine_core = EngineCoreProc(*args, engine_index=dp_rank, **kwargs)"},
		{"vllm/v1/executor/multiproc_executor.py", "_init_executor", "self.rpc_broadcast_mq = MessageQueue("},
		{"vllm/distributed/device_communicators/shm_broadcast.py", "check_shm_free_space", "raise RuntimeError("},
	}
	e.log.record(core, "engine failed", "EngineCore failed to start.\n"+traceback(frames, text))
	e.startFailed("{}")
}

// The size of one NCCL segment: llm-d/llm-d#352.
const ncclSegment = 33030528

// reserveShmSegments reserves NCCL's segments up to a need, or until /dev/shm has no room, which NCCL reports instead of dying.
func (e *engine) reserveShmSegments(needMiB int) {
	for reserved := 0; needMiB == 0 || reserved < needMiB*mib; reserved += ncclSegment {
		if reserved >= e.ceilingMiB*mib {
			e.log.standin("%s took %d MiB without an error (STANDIN_CEILING_MIB)", e.shmFolder, e.ceilingMiB)
			e.exit(2)
		}
		file, err := os.CreateTemp(e.shmFolder, "nccl-")
		if err == nil {
			err = syscall.Fallocate(int(file.Fd()), 0, 0, ncclSegment)
			_ = file.Close()
			if err == nil {
				continue
			}
			e.sayShmSegment(filepath.Base(file.Name()))
		}
		e.removeShmSegments()
		e.failInWorker(0, false, []frame{{"vllm/distributed/device_communicators/pynccl_wrapper.py", "NCCL_CHECK", `raise RuntimeError(f"NCCL error: {error_str}")`}},
			"RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)")
	}
	e.removeShmSegments()
}

// removeShmSegments: NCCL cleans up behind itself, also on this way out.
func (e *engine) removeShmSegments() {
	if left, err := filepath.Glob(filepath.Join(e.shmFolder, "nccl-*")); err == nil {
		for _, name := range left {
			_ = os.Remove(name)
		}
	}
}

// sayShmSegment is visible with NCCL_DEBUG only, as NCCL's warnings are.
func (e *engine) sayShmSegment(name string) {
	switch strings.ToUpper(os.Getenv("NCCL_DEBUG")) {
	case "WARN", "INFO", "TRACE":
		host, _ := os.Hostname()
		pid := e.log.pid(worker(0))
		e.log.raw(worker(0), fmt.Sprintf("%s:%d:%d [0] misc/shmutils.cc:129 NCCL WARN Error while creating shared memory segment /dev/shm/%s (size %d), error: No space left on device (28)", host, pid, pid+12, name, ncclSegment))
	}
}

// fillShm leaves a file of that size in /dev/shm, as a crashed process does.
func (e *engine) fillShm(size int) {
	file, err := os.CreateTemp(e.shmFolder, "psm_")
	if err == nil {
		block := make([]byte, mib)
		for range size {
			if _, err = file.Write(block); err != nil {
				break
			}
		}
	}
	if err != nil {
		e.log.standin("%v", err)
		// llm-d/llm-d#352
		e.failInWorker(0, false, []frame{{"vllm/model_executor/layers/fused_moe/layer.py", "_maybe_make_prepare_finalize", "handle = all2all_manager.get_handle(all_to_all_args)"}},
			"OSError: [Errno 28] No space left on device")
	}
}
