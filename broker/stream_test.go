package broker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/internal/fakemodel"
)

func TestAStreamArrivesAsItIsMade(t *testing.T) {
	step := make(chan struct{})
	b := newBench(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-step
		}
	}), nil)
	res, err := b.client.Do(b.request("POST", "/model/anthropic/v1/messages", "{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	buf := make([]byte, 100)
	for i := range 3 {
		// The provider waits for us: nothing more comes unless this part was passed on at once.
		n, err := io.ReadAtLeast(res.Body, buf, len("data: 0\n\n"))
		if err != nil || string(buf[:n]) != fmt.Sprintf("data: %d\n\n", i) {
			t.Fatalf("got %q, %v", buf[:n], err)
		}
		step <- struct{}{}
	}
}

func TestCutStreamsAreSeenAsCutsAndNeverTriedAgain(t *testing.T) {
	fake := fakemodel.New(fakemodel.Options{})
	b := newBench(t, fake, nil)
	for _, path := range []string{"/model/anthropic/v1/messages", "/model/openai/v1/chat/completions"} {
		fake.Reset()
		a := b.do(b.request("POST", path, say("[[text 2]][[cut]]")))
		if a.err == nil || !strings.Contains(a.body, "word2") {
			t.Errorf("%s: the cut answer looks whole (%v): %s", path, a.err, a.body)
		}
		if n := len(fake.Requests()); n != 1 {
			t.Errorf("%s: the provider was called %d times", path, n)
		}
	}
	if s := b.broker.Stats(); s.Cut != 2 {
		t.Errorf("stats: %+v", s)
	}
}

// A connection that dies before any answer is not tried again either, new or used before: the call may have been paid
// for.
func TestALostCallIsNotRepeated(t *testing.T) {
	var calls atomic.Int64
	b := newBench(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		calls.Add(1)
		if string(raw) == "die" {
			panic(http.ErrAbortHandler)
		}
	}), nil)
	for i, c := range []struct {
		body   string
		status int
	}{{"die", 502}, {"live", 200}, {"die", 502}} {
		r := b.request("POST", "/model/anthropic/v1/messages", c.body)
		r.Header.Set("Idempotency-Key", "x") // would make the transport repeat it
		if a := b.do(r); a.status != c.status || calls.Load() != int64(i+1) {
			t.Fatalf("call %d: got %d %s after %d calls", i, a.status, a.body, calls.Load())
		}
	}
}

func TestAWorkerThatLeavesEndsTheCall(t *testing.T) {
	ended := make(chan struct{})
	b := newBench(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, "data: x\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	}), nil)
	ctx, leave := context.WithCancel(t.Context())
	res, err := b.client.Do(b.request("POST", "/model/anthropic/v1/messages", "{}").WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	leave()
	_ = res.Body.Close()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the provider's call goes on")
	}
}

func TestSlowAndSilentProviders(t *testing.T) {
	fake := fakemodel.New(fakemodel.Options{})
	b := newBench(t, fake, func(o *Options) { o.HeaderTimeout = 100 * time.Millisecond })
	a := b.do(b.request("POST", "/model/anthropic/v1/messages", say("[[hang]]")))
	if kind, code, _ := a.code(t); a.status != 504 || code != "upstream_timeout" || kind != "timeout_error" {
		t.Errorf("no headers: got %d %s", a.status, a.body)
	}
	untilWord(t, func(idle time.Duration) answer {
		b := newBench(t, fake, func(o *Options) { o.IdleTimeout = idle })
		return b.do(b.request("POST", "/model/anthropic/v1/messages", say("[[text 1]][[hang]]")))
	})
}

// untilWord makes a call that is cut after a time, with more and more of it until the first word has come before the cut: how
// much that takes depends on the machine.
func untilWord(t *testing.T, call func(after time.Duration) answer) {
	t.Helper()
	for after := 100 * time.Millisecond; ; after *= 2 {
		a := call(after)
		switch {
		case strings.Contains(a.body, "word1") && a.err != nil:
			return
		case strings.Contains(a.body, "word1"):
			t.Fatalf("silence in mid-stream looks like an end: %s", a.body)
		case after > time.Minute:
			t.Fatalf("no word came: %d %v %s", a.status, a.err, a.body)
		}
	}
}

func TestACallDoesNotOutliveItsCapability(t *testing.T) {
	b := newBench(t, fakemodel.New(fakemodel.Options{}), nil)
	untilWord(t, func(life time.Duration) answer {
		b.token = mint(t, b.signer, testBinding, "run_one", life)
		return b.do(b.request("POST", "/model/anthropic/v1/messages", say("[[text 1]][[hang]]")))
	})
	b.token = mint(t, b.signer, testBinding, "run_one", 150*time.Millisecond)
	a := b.do(b.request("POST", "/model/anthropic/v1/messages", say("[[hang]]")))
	if _, code, _ := a.code(t); a.status != 401 || code != "capability_expired" {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

func BenchmarkProxiedStream(b *testing.B) {
	fake := httptest.NewServer(fakemodel.New(fakemodel.Options{}))
	defer fake.Close()
	s, _ := NewSigner(testKey, nil)
	br, err := New(Options{
		Signer: s, Bindings: &bindings{committed: committed{epoch: 2, gen: 3, run: "run_one"}},
		Upstreams: map[string]Upstream{ProviderAnthropic: {BaseURL: fake.URL, Key: canary}}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	front := httptest.NewServer(br.Handler())
	defer front.Close()
	token, _ := s.Mint(testBinding, "run_one", time.Now().Add(time.Hour))
	for _, c := range []struct{ name, url string }{{"direct", fake.URL}, {"proxied", front.URL + "/model/anthropic"}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				r, _ := http.NewRequest("POST", c.url+"/v1/messages", strings.NewReader(say("[[text 100]]")))
				r.Header.Set("Authorization", "Bearer "+token)
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil {
					b.Fatal(err)
				}
				_ = res.Body.Close()
			}
		})
	}
	http.DefaultClient.CloseIdleConnections()
	br.client.CloseIdleConnections()
}
