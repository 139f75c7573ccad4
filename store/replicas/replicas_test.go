package replicas

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/harness-engine/harness-engine/engine/replica"
)

// memberEnv makes the test binary an engine that joins a folder and waits to be killed.
const memberEnv = "REPLICAS_TEST_MEMBER"

func TestMain(m *testing.M) {
	if path := os.Getenv(memberEnv); path != "" {
		_, err := Join(Options{Folder: path, Info: Info{ID: "eng_0000000000child", PID: os.Getpid()}, Beat: time.Millisecond})
		fmt.Println("joined", err)
		select {}
	}
	goleak.VerifyTestMain(m)
}

func join(t *testing.T, o Options) *Member {
	t.Helper()
	m, err := Join(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Leave() })
	return m
}

func ids(t *testing.T, m *Member) string {
	t.Helper()
	found, err := m.Sightings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range found {
		out = append(out, strings.TrimLeft(s.ID, "eng_0"))
	}
	return strings.Join(out, " ")
}

func TestMembers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	if found, err := Living(t.Context(), dir); err != nil || len(found) != 0 {
		t.Errorf("no folder: %v, %v", found, err)
	}
	a := join(t, Options{Folder: dir, Info: Info{ID: "eng_00000000000001", Addr: "127.0.0.1:1", PID: 1}, Beat: time.Hour})
	b := join(t, Options{Folder: dir, Info: Info{ID: "eng_00000000000002"}, Beat: time.Millisecond})
	if got := ids(t, a); got != "1 2" {
		t.Errorf("a sees %q", got)
	}
	living, err := Living(t.Context(), dir)
	if err != nil || len(living) != 2 || living[0] != a.o.Info {
		t.Errorf("living: %v, %v", living, err)
	}
	before, _ := a.Sightings(t.Context())
	first := b.LastBeat()
	deadline := time.After(time.Minute)
	for !b.LastBeat().After(first) { // two beats later at most, the file shows another time
		select {
		case <-deadline:
			t.Fatal("no beat")
		case <-time.After(time.Millisecond):
		}
	}
	after, _ := a.Sightings(t.Context())
	if before[0] != after[0] || before[1] == after[1] {
		t.Errorf("beats: %v, then %v", before, after)
	}
	if err := b.Leave(); err != nil {
		t.Fatal(err)
	}
	if got := ids(t, a); got != "1" {
		t.Errorf("after b left, a sees %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"+memberSuffix), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ids(t, a); got != "1" {
		t.Errorf("with a file that nobody holds, a sees %q", got)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
}

// child starts this test binary as another engine of the folder.
func child(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), memberEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "joined <nil>\n" {
		t.Fatal(line, err)
	}
	return cmd
}

// TestDeathIsSeenAtOnce kills an engine: nobody has to wait for its lease.
// TestTools: a tool is seen, and is not listed with the engines, nor told anything.
func TestTools(t *testing.T) {
	dir := t.TempDir()
	a := join(t, Options{Folder: dir, Info: Info{ID: "eng_00000000000001", PID: 7}})
	join(t, Options{Folder: dir, Info: Info{ID: "eng_00000000000002", PID: 8, Tool: true}})
	if got, err := a.Sightings(t.Context()); err != nil || len(got) != 2 || got[0].Tool == got[1].Tool {
		t.Fatalf("%+v, %v", got, err)
	}
	if found, err := Living(t.Context(), dir); err != nil || len(found) != 1 || found[0].PID != 7 {
		t.Fatalf("%+v, %v", found, err)
	}
	if a.outbox.some.Load() {
		t.Fatal("a tool gets hints")
	}
}

func TestDeathIsSeenAtOnce(t *testing.T) {
	dir := t.TempDir()
	a := join(t, Options{Folder: dir, Info: Info{ID: "eng_00000000000001"}})
	cmd := child(t, dir)
	if got := ids(t, a); got != "child 1" && got != "1 child" {
		t.Fatalf("a sees %q", got)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := ids(t, a); got != "1" {
		t.Errorf("behind the death of the other, a sees %q", got)
	}
}

// TestEnd ends an engine that is stopped, and nobody else.
func TestEnd(t *testing.T) {
	dir := t.TempDir()
	a := join(t, Options{Folder: dir, Info: Info{ID: "eng_00000000000001", PID: os.Getpid()}})
	engine, stranger := child(t, dir), child(t, t.TempDir())
	if err := engine.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stands := func(replica.Sighting) bool { return true }
	for name, call := range map[string]func() (bool, error){
		"this one":  func() (bool, error) { return a.End(t.Context(), os.Getpid(), stands) },
		"not known": func() (bool, error) { return a.End(t.Context(), 0, stands) },
		"one that beats": func() (bool, error) {
			return a.End(t.Context(), engine.Process.Pid, func(replica.Sighting) bool { return false })
		},
		"no engine of the folder": func() (bool, error) { return a.End(t.Context(), stranger.Process.Pid, stands) },
	} {
		if killed, err := call(); killed || err != nil {
			t.Errorf("%s: %v, %v", name, killed, err)
		}
	}
	if killed, err := a.End(t.Context(), engine.Process.Pid, stands); !killed || err != nil {
		t.Errorf("an engine that is stopped: %v, %v", killed, err)
	}
	if err := engine.Wait(); err == nil {
		t.Error("it ended well")
	}
}

func TestHints(t *testing.T) {
	dir := t.TempDir()
	got := make(chan replica.Hint, 10)
	a := join(t, Options{Folder: dir, Info: Info{ID: "eng_00000000000001"}})
	b := join(t, Options{Folder: dir, Info: Info{ID: "eng_00000000000002"}, OnHint: func(h replica.Hint) { got <- h }})
	a.Tell(replica.Hint{Kind: replica.LogGrew, ID: "run_0"}) // nobody is known yet
	if got := ids(t, a); got != "1 2" {
		t.Fatal(got, b.name)
	}
	// One that is seen for the first time has missed what was told before: it looks everywhere.
	want := []replica.Hint{{Kind: replica.Everything}, {Kind: replica.LogGrew, ID: "run_1"}, {Kind: replica.BindingChanged, ID: "ses_1"}, {Kind: replica.CancelAsked, ID: "run_2"}, {Kind: replica.Everything}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, h := range want {
		if i > 0 {
			a.Tell(h)
		}
		select {
		case g := <-got:
			if g != h {
				t.Errorf("told %v, heard %v", h, g)
			}
		case <-ctx.Done():
			t.Fatalf("%v was not heard", h)
		}
	}
	a.outbox.mu.Lock()
	for i := range maxWaiting {
		a.outbox.waiting[replica.Hint{Kind: replica.LogGrew, ID: fmt.Sprint(i)}] = struct{}{}
	}
	a.outbox.mu.Unlock()
	a.Tell(replica.Hint{Kind: replica.LogGrew, ID: "one too many"})
	select {
	case g := <-got:
		if g.Kind != replica.Everything {
			t.Errorf("after too many hints: %v", g)
		}
	case <-ctx.Done():
		t.Fatal("lost hints were not told")
	}
}

// TestMissedHints: a peer that takes nothing for a while is told to look everywhere when it takes something again.
func TestMissedHints(t *testing.T) {
	dir := t.TempDir()
	a := join(t, Options{Folder: dir, Info: Info{ID: "eng_00000000000001"}})
	heard, goOn := make(chan replica.Hint, 1000), make(chan struct{})
	join(t, Options{Folder: dir, Info: Info{ID: "eng_00000000000002"}, OnHint: func(h replica.Hint) {
		heard <- h
		<-goOn
	}})
	ids(t, a)
	if h := <-heard; h.Kind != replica.Everything { // and there it stays
		t.Fatalf("first it heard %v", h)
	}
	owed := func() bool {
		a.outbox.mu.Lock()
		defer a.outbox.mu.Unlock()
		for _, missed := range a.outbox.peers {
			return missed
		}
		return false
	}
	for i := 0; !owed(); i++ { // the kernel takes a few
		a.Tell(replica.Hint{Kind: replica.LogGrew, ID: fmt.Sprint(i)})
		if t.Context().Err() != nil {
			t.Fatal("a peer that takes nothing is not owed anything")
		}
	}
	close(goOn)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		ids(t, a) // a look, as the engine takes five in a second
		select {
		case h := <-heard:
			if h.Kind == replica.Everything {
				return
			}
		case <-ctx.Done():
			t.Fatal("it was not told that it missed something")
		default:
		}
	}
}

func FuzzParseHints(f *testing.F) {
	f.Add([]byte("log run_1\nbinding ses_1\nall \n"))
	f.Add([]byte("cancel run_1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		hints := parseHints(b)
		for _, h := range hints {
			again = appendHint(again, h)
		}
		if len(again) > maxDatagram {
			return
		}
		back := parseHints(again)
		if fmt.Sprint(back) != fmt.Sprint(hints) {
			t.Errorf("%q is read as %v, and written and read again as %v", b, hints, back)
		}
	})
}

// TestLeasesAreEqual: two engines that judge by different leases would take runs from each other while both live.
func TestLeasesAreEqual(t *testing.T) {
	dir := t.TempDir()
	join(t, Options{Folder: dir, Info: Info{ID: "eng_00000000000001", Lease: time.Minute}})
	if m, err := Join(Options{Folder: dir, Info: Info{ID: "eng_00000000000002", Lease: time.Second}}); err == nil {
		t.Error("an engine with another lease has joined", m.Leave())
	} else if !strings.Contains(err.Error(), "lease is 1s") {
		t.Error(err)
	}
	join(t, Options{Folder: dir, Info: Info{ID: "eng_00000000000003", Lease: time.Minute}})
	join(t, Options{Folder: dir, Info: Info{ID: "eng_00000000000004"}})
}
