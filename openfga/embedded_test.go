package openfga_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/openfga"
)

func TestEmbeddedWantsItsToken(t *testing.T) {
	server, client := start(t)
	get := func(authorization string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.Endpoint()+"/stores", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", authorization)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	defer http.DefaultClient.CloseIdleConnections()
	for name, header := range map[string]string{
		"none": "", "empty": "Bearer ", "other": "Bearer " + strings.ToLower(server.Token()), "bare": server.Token(),
		"longer": "Bearer " + server.Token() + "x", "scheme": "Basic " + server.Token(),
	} {
		if status, body := get(header); status != http.StatusUnauthorized || strings.Contains(body, client.StoreID()) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if status, body := get("Bearer " + server.Token()); status != http.StatusOK || !strings.Contains(body, client.StoreID()) {
		t.Errorf("right token: %d %s", status, body)
	}
	_, err := openfga.NewClient(t.Context(), openfga.ClientOptions{Endpoint: server.Endpoint(), Token: "wrong", Logger: quiet()})
	if !errors.Is(err, authz.ErrUnavailable) {
		t.Errorf("client with a wrong token: %v", err)
	}
	other := startOn(t, filepath.Join(t.TempDir(), "authz.db"))
	if other.Token() == server.Token() || len(server.Token()) < 26 {
		t.Error("tokens must be fresh and long")
	}
}

func TestEmbeddedKeepsTuples(t *testing.T) {
	// The characters have a meaning in a URI and in a DSN.
	path := filepath.Join(t.TempDir(), "a folder", "ta?ble #1%20;", "authz.db")
	first, err := openfga.StartEmbedded(t.Context(), openfga.EmbeddedOptions{Path: path, RequestTimeout: patience, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	client := connect(t, first)
	apply(t, client, authz.Agent("a"), authz.AgentTuples("a", "olga")...)
	store, model := client.StoreID(), client.ModelID()
	for range 2 {
		if err := first.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("file mode %v, want readable by its owner only", info.Mode())
	}

	client = connect(t, startOn(t, path))
	if client.StoreID() != store || client.ModelID() != model {
		t.Errorf("store %s, model %s after a restart; were %s, %s", client.StoreID(), client.ModelID(), store, model)
	}
	if !allowed(t, client, authz.Check{User: "user:olga", Relation: authz.CanEdit, Object: authz.Agent("a"), Fresh: true}) {
		t.Error("the owner is denied after a restart")
	}
	if allowed(t, client, authz.Check{User: "user:nina", Relation: authz.CanEdit, Object: authz.Agent("a"), Fresh: true}) {
		t.Error("a stranger is allowed after a restart")
	}
}

func TestEmbeddedRefusesBadStarts(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "authz.db")
	if err := os.WriteFile(broken, []byte(strings.Repeat("this is no database. ", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, start := range map[string]func() (*openfga.Embedded, error){
		"no path": func() (*openfga.Embedded, error) {
			return openfga.StartEmbedded(t.Context(), openfga.EmbeddedOptions{})
		},
		"a folder": func() (*openfga.Embedded, error) {
			return openfga.StartEmbedded(t.Context(), openfga.EmbeddedOptions{Path: t.TempDir()})
		},
		"garbage": func() (*openfga.Embedded, error) {
			return openfga.StartEmbedded(t.Context(), openfga.EmbeddedOptions{Path: broken})
		},
		"cancelled": func() (*openfga.Embedded, error) {
			return openfga.StartEmbedded(cancelled, openfga.EmbeddedOptions{Path: filepath.Join(t.TempDir(), "authz.db")})
		},
	} {
		if server, err := start(); err == nil {
			t.Errorf("%s: started", name)
			_ = server.Close(t.Context())
		}
	}
	kept, err := os.ReadFile(broken)
	if err != nil || !strings.HasPrefix(string(kept), "this is no database") {
		t.Errorf("a file that is no database was changed: %v", err)
	}
}

func TestEmbeddedStartsSideBySide(t *testing.T) {
	var wg sync.WaitGroup
	dir := t.TempDir()
	for i := range 6 {
		wg.Go(func() {
			server, err := openfga.StartEmbedded(t.Context(), openfga.EmbeddedOptions{Path: filepath.Join(dir, string(rune('a'+i)), "authz.db"), Logger: quiet()})
			if err != nil {
				t.Error(err)
				return
			}
			if err := server.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestEmbeddedLimitsBodies(t *testing.T) {
	server, client := start(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.Endpoint()+"/stores/"+client.StoreID()+"/check",
		strings.NewReader(`{"tuple_key":{"user":"user:`+strings.Repeat("a", 2<<20)+`"}}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+server.Token())
	defer http.DefaultClient.CloseIdleConnections()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return // cut while it was still being sent
	}
	defer response.Body.Close()
	if response.StatusCode < 400 || response.StatusCode >= 500 {
		t.Errorf("2 MiB: %s", response.Status)
	}
}
