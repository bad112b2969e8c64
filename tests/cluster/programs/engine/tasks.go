// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// endpoint is a way to ask a model; vLLM's names and paths (entrypoints/openai, entrypoints/pooling, entrypoints/speech_to_text).
type endpoint struct {
	paths []string
	api   string   // as vLLM calls it in "The model does not support … API"
	tasks []string // of a model that has it
}

var (
	completions    = endpoint{[]string{"/v1/completions"}, "Completions", []string{"generate"}}
	chatCompletion = endpoint{[]string{"/v1/chat/completions"}, "Chat Completions", []string{"generate"}}
	embeddings     = endpoint{[]string{"/v1/embeddings"}, "Embeddings", []string{"embed"}}
	pooling        = endpoint{[]string{"/pooling"}, "Pooling", []string{"embed", "classify", "score", "reward"}}
	classification = endpoint{[]string{"/classify"}, "Classification", []string{"classify"}}
	score          = endpoint{[]string{"/score", "/v1/score"}, "Score", []string{"embed", "score"}}
	transcription  = endpoint{[]string{"/v1/audio/transcriptions"}, "Transcriptions", []string{"transcription"}}
	endpoints      = []endpoint{completions, chatCompletion, embeddings, pooling, classification, score, transcription}
)

// routesByTask: a server has the paths of its model's tasks only (build_app takes supported_tasks). Before, it has all of them, and
// the handler's ErrorResponse goes out with status 200, as FastAPI sends whatever is returned.
var routesByTask = ranges[bool]{{oldest, false}, {"0.16.0", true}}

// nestedErrors: the body of an error is {"error": {…}}, as OpenAI's is.
var nestedErrors = ranges[bool]{{oldest, false}, {"0.10.1", true}}

// task is what the model is told to do; without flags by its name, where vLLM would look at its architecture.
func (e *engine) task() string {
	for _, name := range []string{"convert", "task"} {
		switch told := e.flags.get(name); told {
		case "embed", "embedding":
			return "embed"
		case "classify", "score", "reward", "transcription", "generate":
			return told
		}
	}
	switch model := strings.ToLower(e.model()); {
	case e.flags.get("runner") == "pooling", strings.Contains(model, "embedding"):
		return "embed"
	case strings.Contains(model, "whisper"):
		return "transcription"
	}
	return "generate"
}

func (e *engine) has(way endpoint) bool { return slices.Contains(way.tasks, e.task()) }

// offer adds an endpoint's paths.
func (e *engine) offer(mux *http.ServeMux, way endpoint, handler http.HandlerFunc) {
	if !e.has(way) {
		if routesByTask.at(e.release) {
			return
		}
		handler = func(w http.ResponseWriter, _ *http.Request) {
			e.refuse(w, http.StatusOK, http.StatusBadRequest, fmt.Sprintf("The model does not support %s API", way.api))
		}
	}
	for _, path := range way.paths {
		mux.HandleFunc("POST "+path, handler)
	}
}

// fail answers with vLLM's error body.
func (e *engine) fail(w http.ResponseWriter, code int, message string) {
	e.refuse(w, code, code, message)
}

func (e *engine) refuse(w http.ResponseWriter, status, code int, message string) {
	kinds := map[int]string{400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}
	body := map[string]any{"message": message, "type": kinds[code], "param": nil, "code": code}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if nestedErrors.at(e.release) {
		body = map[string]any{"error": body}
	} else {
		body["object"] = "error"
	}
	_ = json.NewEncoder(w).Encode(body)
}

// ready says whether a request for a model can be answered, and answers it where not.
func (e *engine) ready(w http.ResponseWriter, model string) bool {
	switch {
	case e.dead.Load():
		e.fail(w, http.StatusInternalServerError, "EngineCore encountered an issue. See stack trace (above) for the root cause.")
	case !contains(e.flags.served(), model):
		e.fail(w, http.StatusNotFound, fmt.Sprintf("The model `%s` does not exist.", model))
	default:
		return true
	}
	return false
}

// pooled is a handler of the pooling models' endpoints. given: fields that the request must have; item: one of data.
func (e *engine) pooled(prefix string, given []string, item func() map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			e.fail(w, http.StatusBadRequest, err.Error())
			return
		}
		for _, name := range given {
			if body[name] == nil {
				e.fail(w, http.StatusBadRequest, fmt.Sprintf("[{'type': 'missing', 'loc': ('body', '%s'), 'msg': 'Field required'}]", name))
				return
			}
		}
		model, _ := body["model"].(string)
		if !e.ready(w, model) {
			return
		}
		e.server.finished.Add(1)
		data := item()
		data["index"] = 0
		prompt := len(strings.Fields(fmt.Sprint(body[given[0]])))
		answerJSON(w, map[string]any{
			"id": fmt.Sprintf("%s-%032x", prefix, time.Now().UnixNano()), "object": "list", "created": time.Now().Unix(), "model": model,
			"data":  []any{data},
			"usage": map[string]any{"prompt_tokens": prompt, "total_tokens": prompt, "completion_tokens": 0, "prompt_tokens_details": nil},
		})
	}
}

func embeddingItem() map[string]any {
	return map[string]any{"object": "embedding", "embedding": []float64{0.6, 0.8}}
}

func poolingItem() map[string]any {
	return map[string]any{"object": "pooling", "data": [][]float64{{0.6, 0.8}}}
}

func scoreItem() map[string]any { return map[string]any{"object": "score", "score": 0.5} }

func classificationItem() map[string]any {
	return map[string]any{"label": "LABEL_0", "probs": []float64{0.75, 0.25}, "num_classes": 2}
}

// transcribe hears nothing: it looks whether a WAV file came.
func (e *engine) transcribe(w http.ResponseWriter, r *http.Request) {
	file, _, err := r.FormFile("file")
	if err != nil {
		e.fail(w, http.StatusBadRequest, "[{'type': 'missing', 'loc': ('body', 'file'), 'msg': 'Field required'}]")
		return
	}
	if !e.ready(w, r.FormValue("model")) {
		return
	}
	sound, err := io.ReadAll(file)
	if err != nil || len(sound) < 44 || !bytes.HasPrefix(sound, []byte("RIFF")) || string(sound[8:12]) != "WAVE" {
		e.fail(w, http.StatusBadRequest, "Invalid or unsupported audio file.")
		return
	}
	e.server.finished.Add(1)
	rate := int(sound[28]) | int(sound[29])<<8 | int(sound[30])<<16 | int(sound[31])<<24
	seconds := (len(sound) - 44 + rate - 1) / max(rate, 1)
	answerJSON(w, map[string]any{"text": "", "usage": map[string]any{"type": "duration", "seconds": seconds}})
}

// documents is FastAPI's openapi.json, as far as its paths go.
func (e *engine) documents(w http.ResponseWriter, _ *http.Request) {
	paths := map[string]any{}
	for _, path := range []string{"/health", "/version", "/v1/models"} {
		paths[path] = map[string]any{"get": map[string]any{}}
	}
	for _, way := range endpoints {
		for _, path := range way.paths {
			if e.has(way) || !routesByTask.at(e.release) {
				paths[path] = map[string]any{"post": map[string]any{}}
			}
		}
	}
	answerJSON(w, map[string]any{"openapi": "3.1.0", "info": map[string]any{"title": "FastAPI", "version": "0.1.0"}, "paths": paths})
}

// guarded asks for the key as vLLM's AuthenticationMiddleware does: below /v1 only. The flag counts before the environment.
func (e *engine) guarded(next http.Handler) http.Handler {
	keys := e.flags.values["api_key"]
	if len(keys) == 0 {
		keys = []string{os.Getenv("VLLM_API_KEY")}
	}
	keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return key == "" })
	if len(keys) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		known := strings.EqualFold(scheme, "bearer") && slices.Contains(keys, given)
		if strings.HasPrefix(r.URL.Path, "/v1") && r.Method != http.MethodOptions && !known {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"Unauthorized"}`)
			return
		}
		next.ServeHTTP(w, r)
	})
}
