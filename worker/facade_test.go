package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// broker is a broker's door on a unix socket.
func broker(t *testing.T, h http.HandlerFunc) (socket string, listen func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	return socket, func() {
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Error(err)
			return
		}
		s := httptest.NewUnstartedServer(h)
		s.Listener.Close()
		s.Listener = l
		s.Start()
		t.Cleanup(s.Close)
	}
}

func newTestFacade(t *testing.T) *facade {
	t.Helper()
	f, err := newFacade(quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f
}

func post(t *testing.T, url, body string, headers ...string) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp, string(raw), err
}

func TestFacadeForwards(t *testing.T) {
	var got *http.Request
	var body string
	socket, listen := broker(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got, body = r, string(raw)
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "tea")
	})
	listen()
	f := newTestFacade(t)
	f.setBroker(socket)
	f.allow(t.Context(), "cap-1")
	resp, answer, err := post(t, f.url()+"/anthropic/v1/messages?beta=true&key=canary", "hello",
		"Authorization", "Bearer canary", "X-Api-Key", "canary", "Api-Key", "canary", "X-Goog-Api-Key", "canary",
		"Cookie", "canary", "Proxy-Authorization", "canary", "Anthropic-Version", "1")
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusTeapot || answer != "tea" || resp.Header.Get("X-Answer") != "yes" {
		t.Fatalf("answer %d %q %v", resp.StatusCode, answer, resp.Header)
	}
	if got.URL.Path != "/model/anthropic/v1/messages" || got.URL.RawQuery != "beta=true" || body != "hello" || got.Host != "broker" {
		t.Fatalf("forwarded %s %q %q", got.URL, body, got.Host)
	}
	if got.Header.Get("Authorization") != "Bearer cap-1" || got.Header.Get("Anthropic-Version") != "1" {
		t.Fatalf("headers %v", got.Header)
	}
	if all := fmt.Sprint(got.Header); strings.Contains(all, "canary") || strings.Contains(all, "127.0.0.1") {
		t.Fatalf("headers %v", got.Header)
	}
	if strings.Contains(fmt.Sprint(got.URL, got.Header), f.prefix) {
		t.Fatal("the secret was sent on")
	}
}

func TestFacadeRefuses(t *testing.T) {
	var calls atomic.Int32
	socket, listen := broker(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
	})
	listen()
	f := newTestFacade(t)
	base := strings.TrimSuffix(f.url(), f.prefix+"/model")
	check := func(name, url, body string, want int) {
		t.Helper()
		resp, answer, err := post(t, url, body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if resp.StatusCode != want || !strings.Contains(answer, `"error"`) {
			t.Errorf("%s: %d %q, want %d", name, resp.StatusCode, answer, want)
		}
	}
	check("no run", f.url()+"/x", "", 403)
	f.allow(t.Context(), "cap")
	check("no broker", f.url()+"/x", "", 503)
	f.setBroker(socket)
	for name, path := range map[string]string{
		"no secret": "/model/x", "wrong secret": "/" + strings.Repeat("A", 26) + "/model/x", "not a model": f.prefix + "/tools/x",
		"climbing": f.prefix + "/model/../tools/x", "climbing, escaped": f.prefix + "/%6dodel/%2e%2e/tools", "the door itself": f.prefix + "/model",
		"empty segment": f.prefix + "/model//x",
	} {
		check(name, base+path, "", 404)
	}
	if calls.Load() != 0 {
		t.Errorf("%d calls went through", calls.Load())
	}
	check("too large", f.url()+"/x", strings.Repeat("x", maxModelBody+1), 413)
	over, end := context.WithCancel(t.Context())
	f.allow(over, "cap")
	end()
	check("the run is over", f.url()+"/x", "", 403)
	f.deny()
	check("no run any more", f.url()+"/x", "", 403)
}

// TestFacadeStreams: each piece arrives before the next is sent.
func TestFacadeStreams(t *testing.T) {
	next := make(chan struct{})
	socket, listen := broker(t, func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			fmt.Fprintf(w, "piece %d\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
	})
	listen()
	f := newTestFacade(t)
	f.setBroker(socket)
	f.allow(t.Context(), "cap")
	resp, err := http.Post(f.url()+"/x", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		if l, err := lines.ReadString('\n'); err != nil || l != fmt.Sprintf("piece %d\n", i) {
			t.Fatalf("%q %v", l, err)
		}
		next <- struct{}{}
	}
	if _, err := lines.ReadString('\n'); !errors.Is(err, io.EOF) {
		t.Fatalf("got %v, want EOF", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestFacadeWaitsForABroker, even for one that listens elsewhere by then.
func TestFacadeWaitsForABroker(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprint("elsewhere ", elsewhere), func(t *testing.T) {
			var calls atomic.Int32
			socket, listen := broker(t, func(http.ResponseWriter, *http.Request) { calls.Add(1) })
			f := newTestFacade(t)
			f.setBroker(socket)
			if elsewhere {
				f.setBroker(socket + ".old")
			}
			f.allow(t.Context(), "cap")
			answered := make(chan error, 1)
			go func() {
				resp, _, err := post(t, f.url()+"/x", "")
				if err == nil && resp.StatusCode != 200 {
					err = fmt.Errorf("status %d", resp.StatusCode)
				}
				answered <- err
			}()
			eventually(t, "the call is there", func() bool { return len(f.slots) == 1 })
			listen()
			f.setBroker(socket)
			if err := <-answered; err != nil || calls.Load() != 1 {
				t.Fatalf("%v, %d calls", err, calls.Load())
			}
		})
	}
}

// TestFacadeNeverRepeats: a call that the broker cut, before or after its first byte, is cut for the harness too. It may
// have reached a model either way.
func TestFacadeNeverRepeats(t *testing.T) {
	for name, first := range map[string]string{"before the first byte": "", "after it": "some"} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			socket, listen := broker(t, func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				if first != "" {
					io.WriteString(w, first)
					w.(http.Flusher).Flush()
				}
				panic(http.ErrAbortHandler)
			})
			listen()
			f := newTestFacade(t)
			f.setBroker(socket)
			f.allow(t.Context(), "cap")
			resp, got, err := post(t, f.url()+"/x", "")
			if err == nil || got != first || (resp == nil) != (first == "") {
				t.Fatalf("the cut was mended: %v %q %v", resp, got, err)
			}
			if calls.Load() != 1 {
				t.Fatalf("%d calls", calls.Load())
			}
		})
	}
}

// TestFacadeGivesUp: a harness whose call was certainly not sent is told so, in bounded time.
func TestFacadeGivesUp(t *testing.T) {
	f := newTestFacade(t)
	f.wait = 200 * time.Millisecond
	f.setBroker(filepath.Join(t.TempDir(), "nobody"))
	f.allow(t.Context(), "cap")
	resp, answer, err := post(t, f.url()+"/x", "")
	if err != nil || resp.StatusCode != 503 || !strings.Contains(answer, "unavailable") {
		t.Fatalf("%v %q %v", resp, answer, err)
	}
}

// TestFacadeHandsOver: a call that waits for a broker goes to the engine that took over, once, with the capability that
// this one brought.
func TestFacadeHandsOver(t *testing.T) {
	got := make(chan string, 2)
	socket, listen := broker(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Authorization") })
	listen()
	f := newTestFacade(t)
	f.setBroker(socket + ".dead")
	f.allow(t.Context(), "old")
	answered := make(chan error, 1)
	go func() {
		_, _, err := post(t, f.url()+"/x", "")
		answered <- err
	}()
	eventually(t, "the call is there", func() bool { return len(f.slots) == 1 })
	f.allow(t.Context(), "new")
	f.setBroker(socket)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if a := <-got; a != "Bearer new" || len(got) != 0 {
		t.Fatalf("%q, and %d more calls", a, len(got))
	}
}

// TestFacadeCutsCallsOfAStoppedBroker: when an engine was taken over that lives, its calls go on; when it is stopped, they are
// cut, for they would never end.
func TestFacadeCutsCallsOfAStoppedBroker(t *testing.T) {
	dir := t.TempDir()
	stopped, err := net.Listen("unix", filepath.Join(dir, "stopped")) // accepts, by way of the kernel, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer stopped.Close()
	release, probes := make(chan struct{}), atomic.Int32{}
	living, listen := broker(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-release
		} else {
			probes.Add(1)
		}
	})
	listen()
	next, listen := broker(t, func(http.ResponseWriter, *http.Request) {})
	listen()
	send := func(f *facade, socket string) <-chan error {
		f.allow(t.Context(), "cap")
		f.setBroker(socket)
		done := make(chan error, 1)
		go func() {
			_, _, err := post(t, f.url()+"/x", "")
			done <- err
		}()
		eventually(t, "the call is sent", func() bool { return f.anySent(socket) })
		return done
	}
	impatient, patient := newTestFacade(t), newTestFacade(t)
	impatient.probeTime, patient.probePause = 50*time.Millisecond, time.Millisecond
	hangs, goesOn := send(impatient, stopped.Addr().String()), send(patient, living)
	impatient.setBroker(next)
	patient.setBroker(next)
	if err := <-hangs; err == nil {
		t.Fatal("the call of the stopped broker was answered")
	}
	eventually(t, "the living broker has answered several times", func() bool { return probes.Load() > 5 })
	select {
	case err := <-goesOn:
		t.Fatalf("the call of the living broker ended: %v", err)
	default:
	}
	close(release)
	if err := <-goesOn; err != nil {
		t.Fatal(err)
	}
}

// TestFacadeCutsCallsOfAnEndedTurn: what a harness asked for in one turn does not go on into the next.
func TestFacadeCutsCallsOfAnEndedTurn(t *testing.T) {
	seen := make(chan struct{})
	socket, listen := broker(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begun")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(seen)
	})
	listen()
	f := newTestFacade(t)
	f.setBroker(socket)
	turn, end := context.WithCancel(t.Context())
	f.allow(turn, "cap")
	resp, err := http.Post(f.url()+"/x", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	end()
	f.allow(t.Context(), "next")
	if raw, err := io.ReadAll(resp.Body); err == nil {
		t.Fatalf("the call came to a good end: %q", raw)
	}
	select {
	case <-seen:
	case <-time.After(time.Minute):
		t.Fatal("the broker was not told")
	}
	http.DefaultClient.CloseIdleConnections()
}
