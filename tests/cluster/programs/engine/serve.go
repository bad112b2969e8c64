// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

type server struct {
	running  atomic.Int64
	finished atomic.Int64
	tokens   atomic.Int64
}

// listen opens the port. vLLM binds it early but answers only after its start; so does this.
func (e *engine) listen(host string, port int) error {
	socket, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	handler := e.logged(e.guarded(e.handlers()))
	key, certificate := e.flags.get("ssl_keyfile"), e.flags.get("ssl_certfile")
	go func() {
		if key != "" || certificate != "" {
			_ = http.ServeTLS(socket, handler, certificate, key)
			return
		}
		_ = http.Serve(socket, handler)
	}()
	return nil
}

// handlers are all paths that this model's server has.
func (e *engine) handlers() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", e.health)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, map[string]string{"version": e.version}) })
	mux.HandleFunc("GET /v1/models", e.models)
	mux.HandleFunc("GET /metrics", e.metrics)
	if !e.flags.bool("disable_fastapi_docs") {
		mux.HandleFunc("GET /openapi.json", e.documents)
	}
	e.offer(mux, completions, e.complete)
	e.offer(mux, chatCompletion, e.complete)
	e.offer(mux, embeddings, e.pooled("embd", []string{"input"}, embeddingItem))
	e.offer(mux, pooling, e.pooled("pool", []string{"input"}, poolingItem))
	e.offer(mux, classification, e.pooled("classify", []string{"input"}, classificationItem))
	e.offer(mux, score, e.pooled("score", []string{"text_1", "text_2"}, scoreItem))
	e.offer(mux, transcription, e.transcribe)
	return mux
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Flush() {
	if flusher, ok := w.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}

// logged writes uvicorn's access log.
func (e *engine) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := &statusWriter{w, http.StatusOK}
		next.ServeHTTP(recorder, r)
		e.log.uvicorn(fmt.Sprintf(`%s - "%s %s HTTP/1.1" %d %s`, r.RemoteAddr, r.Method, r.URL.RequestURI(), recorder.status, http.StatusText(recorder.status)))
	})
}

func answerJSON(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func (e *engine) health(w http.ResponseWriter, _ *http.Request) {
	if e.dead.Load() || !e.serving.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (e *engine) models(w http.ResponseWriter, _ *http.Request) {
	var data []map[string]any
	for _, name := range e.flags.served() {
		entry := map[string]any{"id": name, "object": "model", "created": e.started.Unix(), "owned_by": "vllm", "root": e.model()}
		if e.asked.maxModelLen.known {
			entry["max_model_len"] = e.asked.maxModelLen.value
		}
		data = append(data, entry)
	}
	answerJSON(w, map[string]any{"object": "list", "data": data})
}

// complete answers with as many words as are asked for; a word counts as a token.
func (e *engine) complete(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model     string `json:"model"`
		Prompt    any    `json:"prompt"`
		Messages  []any  `json:"messages"`
		MaxTokens int    `json:"max_tokens"`
		Stream    bool   `json:"stream"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		e.fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if !e.ready(w, body.Model) {
		return
	}
	e.server.running.Add(1)
	defer e.server.running.Add(-1)
	count := min(max(body.MaxTokens, 1), 256)
	chat := strings.HasSuffix(r.URL.Path, "/chat/completions")
	prompt := len(strings.Fields(fmt.Sprint(body.Prompt, body.Messages)))
	usage := map[string]int{"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}
	e.server.finished.Add(1)
	e.server.tokens.Add(int64(count))
	if body.Stream {
		e.stream(w, body.Model, chat, count, usage)
		return
	}
	choice := map[string]any{"index": 0, "finish_reason": "length"}
	text := strings.TrimSpace(strings.Repeat("token ", count))
	object := "text_completion"
	if chat {
		object = "chat.completion"
		choice["message"] = map[string]string{"role": "assistant", "content": text}
	} else {
		choice["text"] = text
	}
	answerJSON(w, map[string]any{"id": requestID(chat), "object": object, "created": time.Now().Unix(), "model": body.Model, "choices": []any{choice}, "usage": usage})
}

func (e *engine) stream(w http.ResponseWriter, model string, chat bool, count int, usage map[string]int) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	id := requestID(chat)
	send := func(value any) {
		line, _ := json.Marshal(value)
		_, _ = fmt.Fprintf(w, "data: %s\n\n", line)
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		}
	}
	for i := range count {
		choice := map[string]any{"index": 0, "finish_reason": nil}
		object := "text_completion"
		if chat {
			object = "chat.completion.chunk"
			choice["delta"] = map[string]string{"content": "token "}
		} else {
			choice["text"] = "token "
		}
		if i == count-1 {
			choice["finish_reason"] = "length"
		}
		send(map[string]any{"id": id, "object": object, "created": time.Now().Unix(), "model": model, "choices": []any{choice}})
	}
	send(map[string]any{"id": id, "object": "usage", "created": time.Now().Unix(), "model": model, "choices": []any{}, "usage": usage})
	_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
}

func requestID(chat bool) string {
	prefix := "cmpl-"
	if chat {
		prefix = "chatcmpl-"
	}
	return fmt.Sprintf("%s%032x", prefix, time.Now().UnixNano())
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// Which gauges of the KV cache a release has: the old name goes hidden with 0.11.1, the new one comes with 0.9.2.
var (
	hasGPUCacheUsage = ranges[bool]{{oldest, true}, {"0.11.1", false}}
	hasKVCacheUsage  = ranges[bool]{{oldest, false}, {"0.9.2", true}}
	prefixCacheName  = ranges[string]{{oldest, "gpu_prefix_cache"}, {"0.11.1", "prefix_cache"}}
)

func (e *engine) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	labels := fmt.Sprintf(`engine="0",model_name="%s"`, e.flags.served()[0])
	metric := func(kind, name, help string, value any, labels string) {
		_, _ = fmt.Fprintf(w, "# HELP %[1]s %[2]s\n# TYPE %[1]s %[3]s\n%[1]s{%[4]s} %[5]v\n", name, help, kind, labels, value)
	}
	metric("gauge", "vllm:num_requests_running", "Number of requests in model execution batches.", float64(e.server.running.Load()), labels)
	metric("gauge", "vllm:num_requests_waiting", "Number of requests waiting to be processed.", 0.0, labels)
	if hasGPUCacheUsage.at(e.release) {
		metric("gauge", "vllm:gpu_cache_usage_perc", "GPU KV-cache usage. 1 means 100 percent usage.", 0.0, labels)
	}
	if hasKVCacheUsage.at(e.release) {
		metric("gauge", "vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", 0.0, labels)
	}
	prefixCache := prefixCacheName.at(e.release)
	metric("counter", "vllm:"+prefixCache+"_queries_total", "Prefix cache queries, in terms of number of queried tokens.", 0.0, labels)
	metric("counter", "vllm:"+prefixCache+"_hits_total", "Prefix cache hits, in terms of number of cached tokens.", 0.0, labels)
	metric("counter", "vllm:num_preemptions_total", "Cumulative number of preemption from the engine.", 0.0, labels)
	config := fmt.Sprintf(`block_size="16",cache_dtype="%s",enable_prefix_caching="True",engine="0",gpu_memory_utilization="%v",num_gpu_blocks_override="%s"`,
		e.asked.kvCacheDtype, e.asked.utilization.value, orElse(e.flags.get("num_gpu_blocks_override"), "None"))
	metric("gauge", "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", 1.0, config)
	_, _ = fmt.Fprintf(w, "# HELP process_resident_memory_bytes Resident memory size in bytes.\n# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes %d\n", residentBytes())
}

// shutDown prints uvicorn's last lines.
func (e *engine) shutDown() {
	e.log.uvicorn("Shutting down")
	e.log.uvicorn("Waiting for application shutdown.")
	e.log.uvicorn("Application shutdown complete.")
	e.log.uvicorn(fmt.Sprintf("Finished server process [%d]", os.Getpid()))
}
