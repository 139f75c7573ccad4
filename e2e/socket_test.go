package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/bench/swarm"
	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// Memory of the engine's process for each socket with one subscription while nothing happens, and what may be left of it
// when the sockets are gone: what the runtime keeps for goroutines and descriptors to come.
const (
	crowd         = 10_000
	memoryEach    = 32 << 10
	memoryLeft    = 4 << 10
	goroutineMore = 60 // beside the sockets: requests, timers, the runtime
)

// TestCrowdOfSockets opens ten thousand sockets with one subscription each, lets them be idle, and cuts them off: an idle
// socket has one goroutine and a bounded memory, and when they are gone so is what they took.
func TestCrowdOfSockets(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	sockets := min(crowd, descriptors(t)-500)
	engine := ownEngineWith(t, enginetest.Options{Args: []string{
		"--max-streams", strconv.Itoa(crowd + 100), "--max-caller-streams", strconv.Itoa(crowd + 100), "--pprof", "127.0.0.1:0",
	}})
	profiles := profilesOf(t, engine)
	c := clientOf(t, engine)
	run := start(ctx, t, c, newAgent(ctx, t, c, scripted).ID, "", enginetest.Script(enginetest.Hang()))
	open := func(n int) *swarm.Swarm {
		s, err := swarm.Open(ctx, swarm.Options{
			Addr: strings.TrimPrefix(engine.URL(), "http://"), Token: c.Target().Token, Query: swarm.Query, Sockets: n,
			Variables: func(int) []string { return []string{`{"run":"` + run.ID + `"}`} },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		if _, err := s.Wait(ctx, func(c swarm.Count) bool { return c.Events >= int64(n) }); err != nil {
			t.Fatal(err)
		}
		return s
	}
	open(10).Close() // when it has started; what a first connection makes is no socket's
	goroutines, memory := settled(ctx, t, engine, profiles, func(n int, _ int64) bool { return n < 200 })

	s := open(sockets)
	budget := goroutines + sockets + goroutineMore
	atMost, idle := settled(ctx, t, engine, profiles, func(n int, _ int64) bool { return n <= budget })
	if count := s.Count(); count.Gone > 0 || count.Completed > 0 {
		t.Fatalf("the idle sockets did not stay: %+v", count)
	}
	each := (idle - memory) / int64(sockets)
	if each > memoryEach {
		t.Errorf("an idle socket takes %d bytes, more than %d", each, memoryEach)
	}
	s.Close()
	left, after := settled(ctx, t, engine, profiles, func(n int, now int64) bool {
		if n > goroutines+goroutineMore {
			return false
		}
		profileOf(ctx, t, profiles, "heap?gc=1") // nothing happens in the engine now that would have it collect garbage
		return now-memory <= memoryLeft*int64(sockets)
	})
	kept := (after - memory) / int64(sockets)
	t.Logf("%d sockets: goroutines %d, %d, %d; %d bytes each, of which %d are left", sockets, goroutines, atMost, left, each, kept)
}

// settled waits until the engine has goroutines and memory as wanted, and its memory does not change any more. It may change
// a little for reasons of its own, a collection of garbage or a kernel that takes pages back: what this test looks for is far
// larger.
func settled(ctx context.Context, t *testing.T, engine *enginetest.Engine, profiles string, wanted func(goroutines int, memory int64) bool) (goroutines int, memory int64) {
	t.Helper()
	const looks, most = 6, 240 // a second each
	const slack = 2 << 20
	same := 0
	for range most {
		n, now := goroutinesOf(ctx, t, profiles), memoryOf(t, engine.PID())
		if diff := max(now-memory, memory-now); diff <= slack && wanted(n, now) {
			same++
		} else {
			same, memory = 0, now
		}
		if goroutines = n; same == looks {
			return goroutines, memory
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			t.Fatal(context.Cause(ctx))
		}
	}
	t.Fatalf("the engine does not settle: %d goroutines, %d bytes", goroutines, memory)
	return 0, 0
}

// goroutinesOf counts the goroutines of an engine that serves its profiles.
func goroutinesOf(ctx context.Context, t *testing.T, profiles string) int {
	t.Helper()
	raw := profileOf(ctx, t, profiles, "goroutine?debug=1")
	var n int
	if _, err := fmt.Sscanf(string(raw), "goroutine profile: total %d", &n); err != nil {
		t.Fatalf("%v: %.100s", err, raw)
	}
	return n
}

func profileOf(ctx context.Context, t *testing.T, profiles, name string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+profiles+"/debug/pprof/"+name, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// memoryOf is the memory of a process that no file stands behind, bytes, wherever the kernel keeps it: pages of files and of
// the program come and go as the kernel likes.
func memoryOf(t *testing.T, pid int) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && (fields[0] == "Anonymous:" || fields[0] == "Swap:") {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += kb << 10
		}
	}
	return sum
}

// descriptors is how many files this process may open, and the engine after it.
func descriptors(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return int(min(limit.Max, 1<<20))
}

// servedAt is where the engine says that it serves its profiles.
var servedAt = regexp.MustCompile(`profiles of this process are served.*addr=(\S+)`)

// profilesOf is the address at which an engine that was told to choose one serves its profiles.
func profilesOf(t *testing.T, engine *enginetest.Engine) string {
	t.Helper()
	found := servedAt.FindStringSubmatch(engine.Log())
	if found == nil {
		t.Fatalf("the engine serves no profiles:\n%s", engine.Log())
	}
	return found[1]
}
