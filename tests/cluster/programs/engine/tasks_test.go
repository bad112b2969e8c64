// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func engineWith(t *testing.T, version string, arguments ...string) *engine {
	t.Helper()
	t.Setenv("STANDIN_LAW", "off")
	t.Setenv("STANDIN_VLLM_VERSION", version)
	f, err := parseFlags(append([]string{"M", "--served-model-name", "m"}, arguments...))
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEngine(f, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	e.started = time.Now()
	return e
}

func ask(e *engine, method, path, body string, header ...string) (int, string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	e.guarded(e.handlers()).ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestEachTaskAnswersWithItsOwnShape(t *testing.T) {
	for _, c := range []struct{ task, path, body, field string }{
		{"embed", "/v1/embeddings", `{"model": "m", "input": "a"}`, "embedding"},
		{"embed", "/pooling", `{"model": "m", "input": "a"}`, "data"},
		{"embed", "/score", `{"model": "m", "text_1": "a", "text_2": "b"}`, "score"},
		{"score", "/v1/score", `{"model": "m", "text_1": "a", "text_2": "b"}`, "score"},
		{"classify", "/classify", `{"model": "m", "input": "a"}`, "probs"},
		{"reward", "/pooling", `{"model": "m", "input": "a"}`, "data"},
	} {
		code, text := ask(engineWith(t, "0.19.1", "--convert", c.task), "POST", c.path, c.body)
		var answer struct{ Data []map[string]any }
		if err := json.Unmarshal([]byte(text), &answer); err != nil || code != 200 || len(answer.Data) != 1 || answer.Data[0][c.field] == nil {
			t.Errorf("%s of %s: %d %s", c.path, c.task, code, text)
		}
	}
}

func TestAModelIsOnlyAskedForWhatItCanDo(t *testing.T) {
	body := `{"model": "m", "prompt": "a", "max_tokens": 1}`
	code, text := ask(engineWith(t, "0.19.1", "--task", "embed"), "POST", "/v1/completions", body)
	if code != 404 {
		t.Errorf("from 0.16 on the path isn't there: %d %s", code, text)
	}
	code, text = ask(engineWith(t, "0.13.0", "--task", "embed"), "POST", "/v1/completions", body)
	if code != 200 || text != `{"error":{"code":400,"message":"The model does not support Completions API","param":null,"type":"BadRequestError"}}`+"\n" {
		t.Errorf("until 0.15 an error in a 200: %d %s", code, text)
	}
	code, text = ask(engineWith(t, "0.8.5", "--task", "embed"), "POST", "/v1/completions", body)
	if code != 200 || !strings.Contains(text, `"object":"error"`) || !strings.Contains(text, `"code":400`) {
		t.Errorf("flat until 0.10.0: %d %s", code, text)
	}
}

func TestPathsAreDocumentedAsTheyAre(t *testing.T) {
	for version, all := range map[string]bool{"0.13.0": true, "0.19.1": false} {
		_, text := ask(engineWith(t, version, "--runner", "pooling"), "GET", "/openapi.json", "")
		var document struct{ Paths map[string]any }
		if err := json.Unmarshal([]byte(text), &document); err != nil {
			t.Fatal(err)
		}
		if _, there := document.Paths["/v1/completions"]; there != all {
			t.Errorf("vLLM %s: /v1/completions is documented: %v", version, there)
		}
		if _, there := document.Paths["/v1/embeddings"]; !there {
			t.Errorf("vLLM %s: /v1/embeddings isn't documented", version)
		}
	}
	if code, _ := ask(engineWith(t, "0.19.1", "--disable-fastapi-docs"), "GET", "/openapi.json", ""); code != 404 {
		t.Errorf("--disable-fastapi-docs: %d", code)
	}
}

func TestTheKeyIsAskedForBelowV1(t *testing.T) {
	e := engineWith(t, "0.19.1", "--api-key", "sk-1")
	e.serving.Store(true)
	for _, c := range []struct {
		path, authorization string
		code                int
	}{
		{"/health", "", 200}, {"/openapi.json", "", 200}, {"/v1/models", "", 401}, {"/v1/models", "Bearer sk-2", 401},
		{"/v1/models", "sk-1", 401}, {"/v1/models", "Bearer sk-1", 200}, {"/v1/models", "bearer sk-1", 200},
	} {
		code, text := ask(e, "GET", c.path, "", "Authorization", c.authorization)
		if code != c.code || code == 401 && text != `{"error":"Unauthorized"}` {
			t.Errorf("%s with %q: %d %s", c.path, c.authorization, code, text)
		}
	}
	t.Setenv("VLLM_API_KEY", "sk-env")
	if code, _ := ask(e, "GET", "/v1/models", "", "Authorization", "Bearer sk-env"); code != 401 {
		t.Errorf("the flag counts before the environment: %d", code)
	}
	if code, _ := ask(engineWith(t, "0.19.1"), "GET", "/v1/models", ""); code != 401 {
		t.Errorf("VLLM_API_KEY: %d", code)
	}
}

func TestTranscription(t *testing.T) {
	send := func(sound []byte) (int, string) {
		var form bytes.Buffer
		writer := multipart.NewWriter(&form)
		_ = writer.WriteField("model", "m")
		file, _ := writer.CreateFormFile("file", "a.wav")
		_, _ = file.Write(sound)
		_ = writer.Close()
		return ask(engineWith(t, "0.19.1", "--task", "transcription"), "POST", "/v1/audio/transcriptions", form.String(),
			"Content-Type", writer.FormDataContentType())
	}
	header := append([]byte("RIFF....WAVEfmt ....\x01\x00\x01\x00"), 0x80, 0x3e, 0, 0, 0, 0x7d, 0, 0, 2, 0, 16, 0)
	header = append(header, "data...."...)
	if code, text := send(append(header, make([]byte, 32000)...)); code != 200 || text != `{"text":"","usage":{"seconds":1,"type":"duration"}}`+"\n" {
		t.Errorf("a second of silence: %d %s", code, text)
	}
	if code, text := send([]byte("no sound")); code != 400 {
		t.Errorf("no WAV: %d %s", code, text)
	}
}

func TestHTTPS(t *testing.T) {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, _ := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	private, _ := x509.MarshalECPrivateKey(key)
	folder := t.TempDir()
	for name, block := range map[string]*pem.Block{"key": {Type: "EC PRIVATE KEY", Bytes: private}, "cert": {Type: "CERTIFICATE", Bytes: certificate}} {
		if err := os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	e := engineWith(t, "0.19.1", "--ssl-keyfile", filepath.Join(folder, "key"), "--ssl-certfile", filepath.Join(folder, "cert"))
	if err := e.listen("127.0.0.1", port); err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/v1/models", port))
	if err != nil || answer.StatusCode != 200 {
		t.Errorf("%v %v", answer, err)
	}
}
