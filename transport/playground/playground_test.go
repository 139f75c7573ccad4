package playground

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func get(h http.Handler, path string) (*http.Response, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	resp := w.Result()
	body, _ := io.ReadAll(resp.Body)
	return resp, string(body)
}

func TestBuilt(t *testing.T) {
	h := handler(fstest.MapFS{
		"index.html":               {Data: []byte("<title>page</title>")},
		"README":                   {Data: []byte("not for visitors")},
		"assets/main.js":           {Data: []byte("code")},
		"assets/chunk-ABCDEFGH.js": {Data: []byte("code")},
	})
	for path, want := range map[string]struct {
		status int
		cache  string
	}{
		"/playground":                          {200, ""},
		"/playground/":                         {302, ""},
		"/playground/assets/main.js":           {200, "no-cache"},
		"/playground/assets/chunk-ABCDEFGH.js": {200, "public, max-age=31536000, immutable"},
		"/playground/assets/":                  {404, ""},
		"/playground/assets/none.js":           {404, ""},
		"/playground/README":                   {404, ""},
		"/playground/assets/../README":         {404, ""},
		"/playground/index.html":               {404, ""},
	} {
		resp, body := get(h, path)
		if resp.StatusCode != want.status || (want.status == 200 && resp.Header.Get("Cache-Control") != want.cache) {
			t.Errorf("%s: %d %q", path, resp.StatusCode, resp.Header.Get("Cache-Control"))
		}
		if strings.Contains(body, "not for visitors") {
			t.Errorf("%s shows what is not for visitors", path)
		}
		if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "script-src 'self';") {
			t.Errorf("%s: policy %q", path, csp)
		}
	}
}

func TestNotBuilt(t *testing.T) {
	resp, body := get(handler(fstest.MapFS{"README": {}}), "/playground")
	if resp.StatusCode != 404 || !strings.Contains(body, "npm ci") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// What is embedded is there whether or not the playground was built.
func TestEmbedded(t *testing.T) {
	if resp, _ := get(Handler(), "/playground"); resp.StatusCode != 200 && resp.StatusCode != 404 {
		t.Errorf("%d", resp.StatusCode)
	}
}
