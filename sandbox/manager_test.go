package sandbox

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// failing is a backend in which nothing starts; the real one is tested in sandbox/process.
type failing struct{ killed []string }

func (*failing) Isolation() event.Isolation         { return event.IsolationNone }
func (*failing) Launch(context.Context, Spec) error { return errors.New("nothing starts here") }
func (*failing) Alive(Spec) (bool, error)           { return false, nil }
func (f *failing) Kill(_ context.Context, s Spec, _ bool) error {
	f.killed = append(f.killed, s.Addr)
	return nil
}

func options(data string, b Backend) Options {
	return Options{
		Data: data, Backends: map[string]Backend{"test": b}, Profiles: []Profile{{ID: "p", Backend: "test", Harnesses: []string{"scripted"}}},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

func newTestManager(t *testing.T) (*Manager, *failing) {
	t.Helper()
	b := &failing{}
	m, err := NewManager(options(t.TempDir(), b))
	if err != nil {
		t.Fatal(err)
	}
	return m, b
}

func TestAddressIsDeterministicAndDistinct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gen := rapid.Custom(func(t *rapid.T) harness.Binding {
			return harness.Binding{
				SessionID:  rapid.StringMatching(`[a-c:12]{0,3}`).Draw(t, "session"),
				Epoch:      rapid.Int64Range(1, 12).Draw(t, "epoch"),
				SandboxGen: rapid.Int64Range(1, 12).Draw(t, "generation"),
			}
		})
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		if (a == b) != (address(a) == address(b)) {
			t.Fatalf("%+v is %s, %+v is %s", a, address(a), b, address(b))
		}
		if !addrPattern.MatchString(address(a)) {
			t.Fatalf("address %s", address(a))
		}
	})
}

func TestNewManagerRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no data":           {func(o *Options) { o.Data = "" }, "data folder"},
		"no profile":        {func(o *Options) { o.Profiles = nil }, "no profile"},
		"no such backend":   {func(o *Options) { o.Profiles[0].Backend = "x" }, "backend"},
		"profile, no id":    {func(o *Options) { o.Profiles[0].ID = "" }, "no id"},
		"negative time":     {func(o *Options) { o.Profiles[0].OrphanTTL = -1 }, "negative"},
		"long data":         {func(o *Options) { o.Data = "/" + strings.Repeat("x", 90) }, "too long"},
		"long broker":       {func(o *Options) { o.BrokerSocket = "/" + strings.Repeat("x", 107) }, "broker socket is 1 bytes too long"},
		"data is no folder": {func(o *Options) { o.Data = "/dev/null" }, "failed to make"},
	} {
		o := options(t.TempDir(), &failing{})
		tc.change(&o)
		if _, err := NewManager(o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestAddressesFromOutside(t *testing.T) {
	m, b := newTestManager(t)
	keep := filepath.Join(m.o.Data, "keep")
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"", ".", "..", "../keep", "/", "sbx_", "sbx_../../../../keep0000", "sbx_" + strings.Repeat("z", 20), strings.Repeat("x", 5000)} {
		if err := m.Destroy(t.Context(), addr, AnyLease); err == nil {
			t.Errorf("destroyed %.40q", addr)
		} else if len(err.Error()) > 200 {
			t.Errorf("the error repeats the input: %.300s", err)
		}
		if _, err := m.Attach(t.Context(), harness.Binding{SessionID: "s", Epoch: 1, SandboxGen: 1}, 1, addr); !errors.Is(err, harness.ErrConflict) {
			t.Errorf("attach to %.40q: %v", addr, err)
		}
		if _, err := m.Start(t.Context(), harness.Binding{SessionID: "s", Epoch: 1, SandboxGen: 1}, 1, addr, harness.Construction{Harness: "scripted"}, nil); !errors.Is(err, harness.ErrConflict) {
			t.Errorf("start at %.40q: %v", addr, err)
		}
	}
	if len(b.killed) != 0 {
		t.Errorf("killed %v", b.killed)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
}

func TestStartRefuses(t *testing.T) {
	m, _ := newTestManager(t)
	b := harness.Binding{SessionID: "ses_1", Epoch: 1, SandboxGen: 1}
	if _, err := m.Start(t.Context(), b, 1, m.Reserve(b), harness.Construction{Harness: "other"}, nil); !problem.Is(err, problem.HarnessUnavailable) {
		t.Errorf("no profile: %v", err)
	}
	if _, err := m.Start(t.Context(), b, 1, m.Reserve(b), harness.Construction{Harness: "scripted"}, nil); !problem.Is(err, problem.HarnessUnavailable) {
		t.Errorf("nothing starts: %v", err)
	}
	for _, session := range []string{"", "..", "a/b", "a\x00", strings.Repeat("x", 200)} {
		b.SessionID = session
		if _, err := m.Start(t.Context(), b, 1, m.Reserve(b), harness.Construction{Harness: "scripted"}, nil); err == nil {
			t.Errorf("started for session %.20q", session)
		}
		if err := m.ForgetState(t.Context(), session, 1); err == nil {
			t.Errorf("forgot session %.20q", session)
		}
	}
	if err := m.ForgetState(t.Context(), "ses_1", 0); err == nil {
		t.Error("forgot epoch 0")
	}
	if all, err := m.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("left behind: %v %v", all, err)
	}
	if len(m.live)+len(m.starting) != 0 {
		t.Errorf("places are taken: %v %v", m.live, m.starting)
	}
}

func TestForgetState(t *testing.T) {
	m, _ := newTestManager(t)
	outside := t.TempDir()
	kept := filepath.Join(outside, "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := harness.Binding{SessionID: "ses_1", Epoch: 1, SandboxGen: 1}
	state, workspace, err := m.folders(b)
	if err != nil {
		t.Fatal(err)
	}
	b.Epoch = 2
	other, _, err := m.folders(b)
	if err != nil {
		t.Fatal(err)
	}
	// What an agent may leave: a link that leads out, and folders that cannot be written to or looked into.
	if err := os.Symlink(outside, filepath.Join(workspace, "link")); err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(workspace, "a", "b", "locked")
	if err := os.MkdirAll(filepath.Join(locked, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{locked, filepath.Dir(locked)} {
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := m.ForgetState(t.Context(), "ses_1", 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Dir(state)); !errors.Is(err, os.ErrNotExist) {
		t.Error("the epoch's folder is left")
	}
	for _, path := range []string{kept, other} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if err := m.ForgetState(t.Context(), "ses_1", 2); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(m.stateDir, "ses_1")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the session's folder is left")
	}
}

// TestForgetStateOfEpochsBefore: an engine that was killed while it forgot an epoch leaves it to who forgets a later one.
func TestForgetStateOfEpochsBefore(t *testing.T) {
	m, _ := newTestManager(t)
	var dirs []string
	for epoch := range int64(11) {
		state, _, err := m.folders(harness.Binding{SessionID: "ses_1", Epoch: epoch + 1, SandboxGen: 1})
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, filepath.Dir(state))
	}
	if err := m.ForgetState(t.Context(), "ses_1", 9); err != nil {
		t.Fatal(err)
	}
	for i, dir := range dirs {
		if _, err := os.Stat(dir); (err == nil) != (i >= 9) {
			t.Errorf("epoch %d after 9 was forgotten: %v", i+1, err)
		}
	}
}

func TestListIgnoresStrangers(t *testing.T) {
	m, _ := newTestManager(t)
	addr := address(harness.Binding{SessionID: "s"})
	for _, name := range []string{addr, "other", "sbx_short"} {
		if err := os.Mkdir(filepath.Join(m.runDir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(m.runDir, address(harness.Binding{SessionID: "t"})), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := m.List(t.Context())
	if err != nil || len(all) != 1 || all[0] != addr {
		t.Fatalf("got %v %v", all, err)
	}
}
