package storetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/session"
)

// The child of the kill test: several writers of the log and of documents.
const (
	crashLogs     = 8
	crashSessions = 3
	crashRounds   = 3
	crashAcks     = 400 // acknowledgements after which the child is killed
)

func crashRun(i int) string     { return fmt.Sprintf("run_crash_%d", i) }
func crashSession(i int) string { return fmt.Sprintf("ses_crash_%d", i) }

// crashChunk is what the child writes at first: its size follows from its place.
func crashChunk(i int, first int64) event.Chunk {
	return MakeChunk(crashRun(i), first, 1+int(first+int64(i))%5, 1, "eng_crash", 300)
}

// writeUntilKilled is the child: it writes and prints one line for each acknowledgement, until it is killed. It ends
// by itself only in failure.
func writeUntilKilled(location string, openAt func(string) (Stores, error)) int {
	s, err := openAt(location)
	if err != nil {
		fmt.Println("failed", err)
		return 1
	}
	ctx := context.Background()
	var out sync.Mutex
	ack := func(kind string, i int, n int64) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf("%s %d %d\n", kind, i, n)
	}
	failed := make(chan error)
	for i := range crashLogs {
		go func() {
			tail, err := s.Log.Tail(ctx, crashRun(i))
			for first := tail.Last + 1; err == nil || errors.Is(err, event.ErrEmpty); {
				c := crashChunk(i, first)
				if err = s.Log.Append(ctx, c); err == nil {
					ack("log", i, first)
					first = c.Last + 1
				}
			}
			failed <- err
		}()
	}
	for i := range crashSessions {
		go func() {
			b, err := s.Sessions.Session(ctx, crashSession(i))
			if errors.Is(err, session.ErrNotFound) {
				b = binding(crashSession(i), "dev", "alice", "agt_1")
				err = s.Sessions.InsertSession(ctx, b)
			}
			for err == nil {
				ack("session", i, b.Rev)
				b.Rev++
				b.LastOp = fmt.Sprint("op_", b.Rev)
				err = s.Sessions.UpdateSession(ctx, b)
			}
			failed <- err
		}()
	}
	fmt.Println("failed", <-failed)
	return 1
}

// crashKill kills a process that writes with SIGKILL, again and again on the same data: what it was told is durable is
// there, whole, in order, and the next process goes on from it.
func crashKill(t *testing.T, s Stores) {
	if s.Location == "" {
		t.Skip("the backend has no location that another process can open")
	}
	acked := map[string]int64{} // writer -> last acknowledged place
	for round := range crashRounds {
		noError(t, s.Close())
		runAndKill(t, childLocation, s.Location, crashAcks, acked)
		s = s.Reopen(t)
		ctx := t.Context()
		for i := range crashLogs {
			last := int64(0)
			for _, c := range readAll(ctx, t, s.Log, crashRun(i), 1000) {
				if !reflect.DeepEqual(c, crashChunk(i, c.First)) {
					t.Fatalf("round %d: run %d: the chunk at %d is damaged", round, i, c.First)
				}
				last = c.First
			}
			if want := acked[fmt.Sprint("log ", i)]; last < want {
				t.Fatalf("round %d: run %d: the log ends at %d, acknowledged was %d", round, i, last, want)
			}
		}
		for i := range crashSessions {
			want := acked[fmt.Sprint("session ", i)]
			b, err := s.Sessions.Session(ctx, crashSession(i))
			if want > 0 && (err != nil || b.Rev < want || b.Rev > want+1 || b.Rev > 1 && b.LastOp != fmt.Sprint("op_", b.Rev)) {
				t.Fatalf("round %d: session %d is at revision %d (%v), acknowledged was %d", round, i, b.Rev, err, want)
			}
		}
	}
	for i := range crashLogs {
		if acked[fmt.Sprint("log ", i)] == 0 {
			t.Errorf("writer %d was never acknowledged: the test tests too little", i)
		}
	}
}

// runAndKill starts the child, which finds its location in the variable, kills it after enough acknowledgements, and notes
// all that it printed: for each writer the last place that was acknowledged.
func runAndKill(t *testing.T, variable, location string, acks int, acked map[string]int64) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), variable+"="+location)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	noError(t, err)
	noError(t, child.Start())
	killed := false
	lines, count := bufio.NewScanner(out), 0
	for lines.Scan() {
		var kind string
		var i int
		var place int64
		if _, err := fmt.Sscan(lines.Text(), &kind, &i, &place); err != nil || strings.HasPrefix(kind, "failed") {
			// Between the kill and the end of the pipe nothing can fail; before it, nothing may.
			t.Errorf("the child said %q", lines.Text())
			break
		}
		acked[fmt.Sprint(kind, " ", i)] = place
		if count++; count == acks {
			noError(t, child.Process.Kill())
			killed = true
		}
	}
	if !killed {
		_ = child.Process.Kill()
		t.Errorf("the child ended by itself after %d acknowledgements", count)
	}
	_ = child.Wait() // "signal: killed"
}
