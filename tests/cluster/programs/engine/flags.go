// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

type kind int

const (
	textFlag kind = iota
	intFlag
	humanFlag // 32k is 32000, 32K is 32768
	floatFlag
	boolFlag
	listFlag
)

// flagKinds are the kinds of known flags by canonical name. What isn't here is accepted too: vLLM has hundreds.
var flagKinds = map[string]kind{
	"model": textFlag, "host": textFlag, "port": intFlag, "served_model_name": listFlag, "api_key": textFlag,
	"dtype": textFlag, "quantization": textFlag, "kv_cache_dtype": textFlag, "load_format": textFlag, "download_dir": textFlag,
	"tensor_parallel_size": intFlag, "pipeline_parallel_size": intFlag, "data_parallel_size": intFlag,
	"max_model_len": humanFlag, "max_num_seqs": intFlag, "max_num_batched_tokens": humanFlag,
	"gpu_memory_utilization": floatFlag, "kv_cache_memory_bytes": humanFlag, "num_gpu_blocks_override": intFlag,
	"block_size": intFlag, "swap_space": floatFlag, "cpu_offload_gb": floatFlag, "max_loras": intFlag, "max_lora_rank": intFlag,
	"max_cudagraph_capture_size": intFlag, "api_server_count": intFlag, "seed": intFlag,
	"enforce_eager": boolFlag, "trust_remote_code": boolFlag, "enable_prefix_caching": boolFlag, "enable_chunked_prefill": boolFlag,
	"enable_lora": boolFlag, "enable_auto_tool_choice": boolFlag, "enable_expert_parallel": boolFlag, "enable_sleep_mode": boolFlag,
	"async_scheduling": boolFlag, "headless": boolFlag, "disable_custom_all_reduce": boolFlag, "disable_log_requests": boolFlag,
	"task": textFlag, "runner": textFlag, "convert": textFlag, "ssl_keyfile": textFlag, "ssl_certfile": textFlag, "disable_fastapi_docs": boolFlag,
}

var shortNames = map[string]string{
	"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size", "q": "quantization", "asc": "api_server_count",
}

// booleanStart tells an unknown switch from an unknown flag with a value.
var booleanStart = regexp.MustCompile(`^(enable|disable|no|skip|use|return|allow|trust|enforce|async|language_model_only)(_|$)`)

// shaping are the flags that change what vLLM needs on the GPU and that no recorded row has set.
var shaping = []string{
	"kv_cache_memory_bytes", "num_gpu_blocks_override", "speculative_config", "enable_lora", "cpu_offload_gb", "dtype",
	"pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size", "prefill_context_parallel_size",
	"cudagraph_capture_sizes", "max_cudagraph_capture_size", "cuda_graph_sizes", "compilation_config", "limit_mm_per_prompt",
	"language_model_only", "skip_mm_profiling", "enable_expert_parallel", "disable_hybrid_kv_cache_manager", "load_format",
	"enable_sleep_mode", "offload_backend", "kv_offloading_size",
}

type flags struct {
	order    []string // canonical names, as given
	values   map[string][]string
	modelTag bool // the model was given without --model
}

// usageError is what argparse does: a message and exit code 2.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func (f *flags) set(name string, values ...string) {
	f.order = append(slices.DeleteFunc(f.order, func(n string) bool { return n == name }), name)
	f.values[name] = values
}

func (f *flags) has(name string) bool { _, ok := f.values[name]; return ok }

func (f *flags) get(name string) string {
	if v := f.values[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func (f *flags) int(name string, fallback int) int {
	if !f.has(name) {
		return fallback
	}
	n, err := humanInt(f.get(name), flagKinds[name] == humanFlag)
	if err != nil {
		return fallback
	}
	return n
}

func (f *flags) float(name string, fallback float64) float64 {
	if n, err := strconv.ParseFloat(f.get(name), 64); err == nil {
		return n
	}
	return fallback
}

func (f *flags) bool(name string) bool { return f.get(name) == "True" }

func (f *flags) served() []string {
	if f.has("served_model_name") {
		return f.values["served_model_name"]
	}
	return []string{f.get("model")}
}

// parseFlags reads the arguments of "vllm serve" or of the api_server module.
func parseFlags(args []string) (*flags, error) {
	f := &flags{values: map[string][]string{}}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if !strings.HasPrefix(arg, "-") || arg == "-" {
			if f.modelTag {
				return nil, usageError{"unrecognized arguments: " + arg}
			}
			f.modelTag = true
			f.set("model", arg)
			continue
		}
		spelled, value, hasValue := strings.Cut(arg, "=")
		name := strings.ReplaceAll(strings.TrimLeft(spelled, "-"), "-", "_")
		if long, ok := shortNames[name]; ok && !strings.HasPrefix(arg, "--") {
			name = long
		}
		kindOf, isKnown := flagKinds[name]
		if rest, ok := strings.CutPrefix(name, "no_"); ok && !hasValue && (flagKinds[rest] == boolFlag || !isKnown) {
			f.set(rest, "False")
			continue
		}
		if kindOf == boolFlag || (!isKnown && !hasValue && booleanStart.MatchString(name)) {
			f.set(name, "True")
			continue
		}
		if kindOf == listFlag {
			values := []string{}
			if hasValue {
				values = append(values, value)
			}
			for !hasValue && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				i++
				values = append(values, args[i])
			}
			if len(values) == 0 {
				return nil, usageError{"argument " + spelled + ": expected at least one argument"}
			}
			f.set(name, values...)
			continue
		}
		if !hasValue {
			if i+1 >= len(args) || (strings.HasPrefix(args[i+1], "--") || isSwitch(args[i+1])) {
				if isKnown {
					return nil, usageError{"argument " + spelled + ": expected one argument"}
				}
				f.set(name, "True")
				continue
			}
			i++
			value = args[i]
		}
		if err := check(spelled, name, kindOf, value); err != nil {
			return nil, err
		}
		f.set(name, value)
	}
	return f, nil
}

// isSwitch: a short flag, but not a negative number.
func isSwitch(arg string) bool {
	return strings.HasPrefix(arg, "-") && len(arg) > 1 && (arg[1] < '0' || arg[1] > '9')
}

func check(spelled, name string, k kind, value string) error {
	var err error
	typeName := ""
	switch k {
	case intFlag:
		typeName = "int"
		_, err = strconv.Atoi(value)
	case humanFlag:
		typeName = "human_readable_int"
		if name == "max_model_len" && value == "auto" {
			return nil
		}
		_, err = humanInt(value, true)
	case floatFlag:
		typeName = "float"
		_, err = strconv.ParseFloat(value, 64)
	}
	if err != nil {
		return usageError{fmt.Sprintf("argument %s: invalid %s value: '%s'", spelled, typeName, value)}
	}
	return nil
}

var (
	humanDecimal = regexp.MustCompile(`^(\d+(?:\.\d+)?)([kmgt])$`)
	humanBinary  = regexp.MustCompile(`^(\d+)([KMGT])$`)
)

// humanInt: lower-case suffixes are powers of 1000 and may have fractions, upper-case ones are powers of 1024.
func humanInt(value string, human bool) (int, error) {
	if human {
		if m := humanDecimal.FindStringSubmatch(value); m != nil {
			n, err := strconv.ParseFloat(m[1], 64)
			for range strings.Index("kmgt", m[2]) + 1 {
				n *= 1000
			}
			return int(n), err
		}
		if m := humanBinary.FindStringSubmatch(value); m != nil {
			n, err := strconv.Atoi(m[1])
			return n << (10 * (strings.Index("KMGT", m[2]) + 1)), err
		}
	}
	return strconv.Atoi(value)
}

// python is a flag's value as Python prints it.
func python(name string, values []string) string {
	if flagKinds[name] == listFlag {
		quoted := make([]string, len(values))
		for i, v := range values {
			quoted[i] = "'" + v + "'"
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	v := values[0]
	switch flagKinds[name] {
	case humanFlag:
		if n, err := humanInt(v, true); err == nil {
			return strconv.Itoa(n)
		}
	case intFlag:
		return v
	case floatFlag:
		if n, err := strconv.ParseFloat(v, 64); err == nil {
			return pythonFloat(n)
		}
	}
	if v == "True" || v == "False" || v == "None" {
		return v
	}
	if _, err := strconv.Atoi(v); err == nil {
		return v
	}
	return "'" + strings.ReplaceAll(v, "'", `\'`) + "'"
}

// pythonFloat prints like repr(): 7.0, 7.1, 0.9.
func pythonFloat(n float64) string {
	s := strconv.FormatFloat(n, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// question turns the flags into what the table is asked.
func (f *flags) question(t *table, v release, gpu string) question {
	q := question{
		model: f.get("model"), tp: f.int("tensor_parallel_size", 1),
		quantization: f.get("quantization"), kvCacheDtype: orElse(f.get("kv_cache_dtype"), "auto"),
	}
	q.gpu = orElse(gpu, t.gpuOf(q.model, q.tp))
	q.utilization = axis[float64]{f.float("gpu_memory_utilization", utilizationDefault.at(v)), true, f.has("gpu_memory_utilization")}
	seqs, tokens, knownDefaults := t.batchDefaults(q.gpu)
	given := func(name string, fallback int, fallbackKnown bool) axis[int] {
		if !f.has(name) {
			return axis[int]{fallback, fallbackKnown, false}
		}
		return axis[int]{f.int(name, 0), true, true}
	}
	q.maxNumSeqs = given("max_num_seqs", seqs, knownDefaults)
	q.batchedTokens = given("max_num_batched_tokens", tokens, knownDefaults)
	own := t.info(q.model).MaxModelLen
	if own != nil {
		q.maxModelLen = given("max_model_len", *own, true)
	} else {
		q.maxModelLen = given("max_model_len", 0, false)
	}
	q.enforceEager = axis[bool]{f.bool("enforce_eager"), true, f.has("enforce_eager")}
	for _, name := range shaping {
		if f.has(name) && !slices.Contains([]string{"auto", "1", "False"}, f.get(name)) {
			q.foreign = append(q.foreign, "--"+strings.ReplaceAll(name, "_", "-"))
		}
	}
	if length := f.get("max_model_len"); length == "auto" || length == "-1" {
		q.foreign = append(q.foreign, "--max-model-len auto")
	}
	return q
}
