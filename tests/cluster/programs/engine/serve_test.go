// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func engineFor(t *testing.T, version string, out io.Writer) *engine {
	t.Helper()
	t.Setenv("STANDIN_LAW", "off")
	t.Setenv("STANDIN_VLLM_VERSION", version)
	f, err := parseFlags([]string{"M", "--served-model-name", "m"})
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEngine(f, out, out)
	if err != nil {
		t.Fatal(err)
	}
	e.started = time.Now()
	return e
}

func get(handler http.HandlerFunc, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	handler(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}

func TestHealth(t *testing.T) {
	e := engineFor(t, "0.11.0", io.Discard)
	if got := get(e.health, "GET", "/health", "").Code; got != 503 {
		t.Errorf("during the start: %d", got)
	}
	e.serving.Store(true)
	if got := get(e.health, "GET", "/health", "").Code; got != 200 {
		t.Errorf("in serving: %d", got)
	}
	e.dead.Store(true)
	if got := get(e.health, "GET", "/health", "").Code; got != 503 {
		t.Errorf("with a dead core: %d", got)
	}
}

func TestCompletions(t *testing.T) {
	e := engineFor(t, "0.11.0", io.Discard)
	w := get(e.complete, "POST", "/v1/completions", `{"model": "m", "prompt": "a b", "max_tokens": 3}`)
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"text":"token token token"`) || !strings.Contains(w.Body.String(), `"completion_tokens":3`) {
		t.Error(w.Code, w.Body)
	}
	w = get(e.complete, "POST", "/v1/chat/completions", `{"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "stream": true}`)
	if !strings.HasSuffix(w.Body.String(), "data: [DONE]\n\n") || strings.Count(w.Body.String(), `"delta"`) != 2 || !strings.Contains(w.Body.String(), `"total_tokens"`) {
		t.Error(w.Body)
	}
	if got := get(e.complete, "POST", "/v1/completions", `{"model": "other"}`).Code; got != 404 {
		t.Errorf("another model: %d", got)
	}
	if got := get(e.complete, "POST", "/v1/completions", `{`).Code; got != 400 {
		t.Errorf("broken JSON: %d", got)
	}
}

func TestMetricNames(t *testing.T) {
	for version, usage := range map[string][2]bool{"0.8.5": {true, false}, "0.9.2": {true, true}, "0.11.0": {true, true}, "0.11.2": {false, true}, "0.28.0": {false, true}} {
		body := get(engineFor(t, version, io.Discard).metrics, "GET", "/metrics", "").Body.String()
		for i, name := range []string{"vllm:gpu_cache_usage_perc{", "vllm:kv_cache_usage_perc{"} {
			if strings.Contains(body, name) != usage[i] {
				t.Errorf("vLLM %s: %s is %v", version, name, !usage[i])
			}
		}
		for _, name := range []string{"vllm:num_requests_running{", "vllm:num_requests_waiting{", "vllm:num_preemptions_total{", "vllm:cache_config_info{"} {
			if !strings.Contains(body, name) {
				t.Errorf("vLLM %s lacks %s", version, name)
			}
		}
	}
}

func TestAccessLog(t *testing.T) {
	var out bytes.Buffer
	e := engineFor(t, "0.11.0", &out)
	e.logged(http.HandlerFunc(e.health)).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/health?a=1", nil))
	if got := out.String(); !strings.Contains(got, `INFO:     192.0.2.1:1234 - "GET /health?a=1 HTTP/1.1" 503 Service Unavailable`) || !strings.HasPrefix(got, "(APIServer pid=") {
		t.Errorf("%q", got)
	}
}
