package openfga_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/openfga"
)

// between puts a handler between client and server; serve passes a request on.
func between(t *testing.T, server *openfga.Embedded, handle func(serve http.Handler, w http.ResponseWriter, r *http.Request)) *httptest.Server {
	t.Helper()
	target, err := url.Parse(server.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(proxy, w, r) }))
	t.Cleanup(func() { front.Close(); transport.CloseIdleConnections() })
	return front
}

func connectTo(t *testing.T, endpoint, token string, change func(*openfga.ClientOptions)) (*openfga.Client, error) {
	t.Helper()
	o := openfga.ClientOptions{Endpoint: endpoint, Token: token, Timeout: patience, Logger: quiet()}
	if change != nil {
		change(&o)
	}
	client, err := openfga.NewClient(t.Context(), o)
	if err == nil {
		t.Cleanup(client.Close)
	}
	return client, err
}

func TestOutageDenies(t *testing.T) {
	server, client := start(t)
	apply(t, client, authz.Agent("a"), authz.AgentTuples("a", "olga")...)
	check := authz.Check{User: "user:olga", Relation: authz.CanView, Object: authz.Agent("a")}
	if !allowed(t, client, check) {
		t.Fatal("the owner is denied while the server is there")
	}
	if err := client.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ok, err := client.Check(t.Context(), check); ok || !errors.Is(err, authz.ErrUnavailable) {
		t.Errorf("check without a server: %v, %v", ok, err)
	}
	if answers, err := client.CheckAll(t.Context(), []authz.Check{check}); answers != nil || !errors.Is(err, authz.ErrUnavailable) {
		t.Errorf("batch without a server: %v, %v", answers, err)
	}
	if err := client.Apply(t.Context(), authz.Agent("a"), nil); !errors.Is(err, authz.ErrUnavailable) {
		t.Errorf("apply without a server: %v", err)
	}
	if err := client.Ready(t.Context()); !errors.Is(err, authz.ErrUnavailable) {
		t.Errorf("ready without a server: %v", err)
	}
	if _, err := connectTo(t, server.Endpoint(), server.Token(), nil); !errors.Is(err, authz.ErrUnavailable) {
		t.Errorf("connect without a server: %v", err)
	}
}

// Every answer that is not a clear yes or no is a no.
func TestStrangeAnswersDeny(t *testing.T) {
	server, patient := start(t)
	var answer atomic.Pointer[http.HandlerFunc]
	front := between(t, server, func(serve http.Handler, w http.ResponseWriter, r *http.Request) {
		if f := answer.Load(); f != nil {
			(*f)(w, r)
			return
		}
		serve.ServeHTTP(w, r)
	})
	apply(t, patient, authz.Agent("a"), authz.AgentTuples("a", "olga")...)
	connectIn := func(timeout time.Duration) (*openfga.Client, error) {
		return connectTo(t, front.URL, server.Token(), func(o *openfga.ClientOptions) {
			o.Timeout, o.StoreID, o.ModelID = timeout, patient.StoreID(), patient.ModelID()
		})
	}
	whole, err := connectIn(patience)
	if err != nil {
		t.Fatal(err)
	}
	impatient, err := connectIn(time.Second)
	for timeout := 2 * time.Second; err != nil && timeout < patience; timeout *= 2 { // a slow machine takes longer to connect
		impatient, err = connectIn(timeout)
	}
	if err != nil {
		t.Fatal(err)
	}
	check := authz.Check{User: "user:olga", Relation: authz.CanView, Object: authz.Agent("a")}
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, f := range map[string]http.HandlerFunc{
		"500":         text(500, `{"code":"internal_error","message":"no"}`),
		"503 allowed": text(503, `{"allowed":true,"result":{"0":{"allowed":true}}}`),
		"429":         text(429, `{}`),
		"404":         text(404, `{"code":"store_id_not_found"}`),
		"400":         text(400, `{"code":"validation_error"}`),
		"401 allowed": text(401, `{"allowed":true,"result":{"0":{"allowed":true}}}`),
		"302": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, front.URL+"/elsewhere", http.StatusFound)
		},
		"not JSON":     text(200, `<html>allowed</html>`),
		"cut":          text(200, `{"allowed":tr`),
		"other type":   text(200, `{"allowed":"true","result":{"0":{"allowed":"true"}}}`),
		"batch error":  text(200, `{"allowed":false,"result":{"0":{"error":{"message":"depth"}}}}`),
		"batch misses": text(200, `{"result":{"1":{"allowed":true}}}`),
		"empty":        text(200, ``),
		"hang up":      func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"too long": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"allowed":true,"result":{"0":{"allowed":true}},"x":"`+strings.Repeat("a", 9<<20)+`"}`)
		},
		"silent": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then does the server watch for the client's leaving
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := whole
			if name == "silent" {
				client = impatient
			}
			answer.Store(&f)
			defer answer.Store(nil)
			if ok, err := client.Check(t.Context(), check); ok {
				t.Errorf("check: allowed, %v", err)
			} else if err == nil && !strings.HasPrefix(name, "batch") {
				t.Error("check: denied without an error")
			} else if err != nil && !errors.Is(err, authz.ErrUnavailable) {
				t.Errorf("check: %v", err)
			}
			if answers, err := client.CheckAll(t.Context(), []authz.Check{check}); answers != nil || !errors.Is(err, authz.ErrUnavailable) {
				t.Errorf("batch: %v, %v", answers, err)
			}
		})
	}
	if !allowed(t, patient, check) {
		t.Error("the owner is denied after the outages")
	}
}

func TestReadsAreRepeatedWritesAreNot(t *testing.T) {
	server, _ := start(t)
	var fail, asked atomic.Int32
	front := between(t, server, func(serve http.Handler, w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if fail.Add(-1) >= 0 {
			http.Error(w, `{"code":"unavailable"}`, http.StatusServiceUnavailable)
			return
		}
		serve.ServeHTTP(w, r)
	})
	client, err := connectTo(t, front.URL, server.Token(), nil)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, client, authz.Agent("a"), authz.AgentTuples("a", "olga")...)
	check := authz.Check{User: "user:olga", Relation: authz.CanView, Object: authz.Agent("a")}
	for _, row := range []struct {
		failures, asked int32
		ok              bool
	}{{0, 1, true}, {1, 2, true}, {2, 3, true}, {3, 3, false}, {9, 3, false}} {
		fail.Store(row.failures)
		asked.Store(0)
		ok, err := client.Check(t.Context(), check)
		if ok != row.ok || (err == nil) != row.ok || asked.Load() != row.asked {
			t.Errorf("%d failures: %v after %d requests (%v), want %v after %d", row.failures, ok, asked.Load(), err, row.ok, row.asked)
		}
	}
	fail.Store(0)

	var writes atomic.Int32
	refusing := between(t, server, func(serve http.Handler, w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/write") {
			writes.Add(1)
			http.Error(w, `{}`, http.StatusServiceUnavailable)
			return
		}
		serve.ServeHTTP(w, r)
	})
	client, err = connectTo(t, refusing.URL, server.Token(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Apply(t.Context(), authz.Agent("b"), authz.AgentTuples("b", "olga")); !errors.Is(err, authz.ErrUnavailable) {
		t.Errorf("apply: %v", err)
	}
	if writes.Load() != 1 {
		t.Errorf("%d writes, want 1", writes.Load())
	}
}

func TestCancelledCheckDenies(t *testing.T) {
	_, client := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ok, err := client.Check(ctx, authz.Check{User: "user:olga", Relation: authz.CanView, Object: authz.Agent("a")}); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", ok, err)
	}
}

func TestCheckAllOfNothing(t *testing.T) {
	_, client := start(t)
	if answers, err := client.CheckAll(t.Context(), nil); len(answers) != 0 || err != nil {
		t.Errorf("%v, %v", answers, err)
	}
}

// A change is seen at once by a check that asks for it, and by every check after CacheTTL.
func TestFreshPassesTheCache(t *testing.T) {
	_, client := start(t)
	object := authz.Agent("a")
	check := authz.Check{User: "user:rita", Relation: authz.CanView, Object: object}
	fresh := check
	fresh.Fresh = true
	owner := authz.AgentTuples("a", "olga")
	for round := range 3 {
		apply(t, client, object, append(owner, tuple("user:rita", authz.RelationRunner, "agent:a"))...)
		if !allowed(t, client, fresh) {
			t.Fatalf("round %d: denied after the grant", round)
		}
		_ = allowed(t, client, check) // fills the cache
		apply(t, client, object, owner...)
		if allowed(t, client, fresh) {
			t.Fatalf("round %d: allowed after the revocation", round)
		}
		if answers, err := client.CheckAll(t.Context(), []authz.Check{check, fresh}); err != nil || answers[0] || answers[1] {
			t.Fatalf("round %d: batch %v, %v", round, answers, err)
		}
	}
}

func TestNewClientRefusesBadOptions(t *testing.T) {
	server, client := start(t)
	for name, change := range map[string]func(*openfga.ClientOptions){
		"no endpoint": func(o *openfga.ClientOptions) { o.Endpoint = "" },
		"scheme":      func(o *openfga.ClientOptions) { o.Endpoint = "ftp://127.0.0.1" },
		"no host":     func(o *openfga.ClientOptions) { o.Endpoint = "http://" },
		"userinfo":    func(o *openfga.ClientOptions) { o.Endpoint = "http://me:hunter2@127.0.0.1" },
		"query":       func(o *openfga.ClientOptions) { o.Endpoint += "?a=b" },
		"control":     func(o *openfga.ClientOptions) { o.Endpoint = "http://me:hunter2@127.0.0.1\x7f" },
		"store form":  func(o *openfga.ClientOptions) { o.StoreID = "../stores" },
		"store":       func(o *openfga.ClientOptions) { o.StoreID = "01ARZ3NDEKTSV4RRFFQ69G5FAV" },
		"model form":  func(o *openfga.ClientOptions) { o.ModelID = "latest" },
		"model":       func(o *openfga.ClientOptions) { o.StoreID, o.ModelID = client.StoreID(), "01ARZ3NDEKTSV4RRFFQ69G5FAV" },
		"name":        func(o *openfga.ClientOptions) { o.StoreName = strings.Repeat("n", 300) },
	} {
		_, err := connectTo(t, server.Endpoint(), server.Token(), change)
		if err == nil {
			t.Errorf("%s: connected", name)
		} else if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), server.Token()) {
			t.Errorf("%s: the error shows a secret: %v", name, err)
		}
	}
}

func TestBootstrapFindsWhatIsThere(t *testing.T) {
	server, client := start(t)
	again := connect(t, server)
	if again.StoreID() != client.StoreID() || again.ModelID() != client.ModelID() {
		t.Error("a second client made a store or model of its own")
	}
	other, err := connectTo(t, server.Endpoint(), server.Token(), func(o *openfga.ClientOptions) { o.StoreName = "other" })
	if err != nil {
		t.Fatal(err)
	}
	if other.StoreID() == client.StoreID() {
		t.Error("two names share a store")
	}
	byID, err := connectTo(t, server.Endpoint()+"/", server.Token(), func(o *openfga.ClientOptions) {
		o.StoreID, o.ModelID = client.StoreID(), client.ModelID()
	})
	if err != nil {
		t.Fatal(err)
	}
	if byID.StoreID() != client.StoreID() || byID.ModelID() != client.ModelID() {
		t.Error("ids were given and others are used")
	}

	// A newer model of somebody else does not hide ours, and does not fit when it is asked for.
	foreign := writeModel(t, server, client.StoreID())
	if again := connect(t, server); again.ModelID() != client.ModelID() {
		t.Errorf("model %s, want the one that was there, %s", again.ModelID(), client.ModelID())
	}
	_, err = connectTo(t, server.Endpoint(), server.Token(), func(o *openfga.ClientOptions) {
		o.StoreID, o.ModelID = client.StoreID(), foreign
	})
	if err == nil || !strings.Contains(err.Error(), `no type "agent"`) {
		t.Errorf("a model without agents: %v", err)
	}
}

func writeModel(t *testing.T, server *openfga.Embedded, store string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.Endpoint()+"/stores/"+store+"/authorization-models",
		strings.NewReader(`{"schema_version":"1.1","type_definitions":[{"type":"user"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+server.Token())
	defer http.DefaultClient.CloseIdleConnections()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var written struct {
		ID string `json:"authorization_model_id"`
	}
	if err := json.NewDecoder(response.Body).Decode(&written); err != nil || written.ID == "" {
		t.Fatal(fmt.Errorf("%s: %w", response.Status, err))
	}
	return written.ID
}
