package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/store/replicas"
	"github.com/harness-engine/harness-engine/transport/auth"
)

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"ses_1": "ses_1", "/a/b c": "'/a/b c'", "": "''", "it's": `'it'\''s'`, "$(rm)": "'$(rm)'", "-x": "-x", "a;b": "'a;b'",
	} {
		if got := quote(in); got != want {
			t.Errorf("quote(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestComeBackHasEveryFlagButTheToken(t *testing.T) {
	c := chatCmd{Agent: "helper", callFlags: callFlags{Data: "/my data", URL: "http://h:1", Token: "secret", Subject: "alice", Environment: "default"}}
	if got, want := c.comeBack("ses_1"), "harness-engine chat helper --resume ses_1 --data '/my data' --url http://h:1 --subject alice"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestEndpointURL(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:80": "http://127.0.0.1:80", "0.0.0.0:80": "http://localhost:80", "[::]:80": "http://localhost:80", ":80": "http://localhost:80", "[::1]:80": "http://[::1]:80",
	} {
		if got := (endpoint{Addr: addr}).url(); got != want {
			t.Errorf("%s: got %s, want %s", addr, got, want)
		}
	}
}

// folderWith makes a data folder with an engine's address and a key, as far as they are wanted.
func folderWith(t *testing.T, addr string, key bool) dataFolder {
	t.Helper()
	d := dataFolder(t.TempDir())
	if addr != "" {
		m, err := replicas.Join(replicas.Options{Folder: d.path(dirReplicas), Info: replicas.Info{ID: "eng_1", Addr: addr, PID: 1}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Leave() })
	}
	if key {
		if _, err := auth.NewDev(auth.DevOptions{KeyFile: d.path(fileTokenKey), Environment: "default"}); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func TestTarget(t *testing.T) {
	whole, keyless, idle := folderWith(t, "127.0.0.1:9", true), folderWith(t, "127.0.0.1:9", false), folderWith(t, "", true)
	for _, tc := range []struct {
		name       string
		flags      callFlags
		url, token string // token: "made", or as it is
		err        string
	}{
		{"running", callFlags{Data: string(whole)}, "http://127.0.0.1:9", "made", ""},
		{"everything given", callFlags{URL: "http://h:1/", Token: "t"}, "http://h:1", "t", ""},
		{"token given", callFlags{Data: string(keyless), Token: "t"}, "http://127.0.0.1:9", "t", ""},
		{"address given", callFlags{Data: string(idle), URL: "http://h:1"}, "http://h:1", "made", ""},
		{"no key", callFlags{Data: string(keyless)}, "", "", "give --token"},
		{"no engine", callFlags{Data: string(idle)}, "", "", "no engine runs on " + string(idle)},
		{"address without a key", callFlags{Data: string(folderWith(t, "", false)), URL: "http://h:1"}, "", "", "a token is needed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.flags.Subject, tc.flags.Environment = "dev", "default"
			got, err := tc.flags.target(t.Context())
			switch {
			case tc.err != "":
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %s", err, tc.err)
				}
			case err != nil || got.URL != tc.url || tc.token != "made" && got.Token != tc.token || tc.token == "made" && strings.Count(got.Token, ".") != 2:
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	if _, err := os.Stat(keyless.path(fileTokenKey)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key was made: %v", err)
	}
}

func TestMessageFromTheInput(t *testing.T) {
	dash := "-"
	got, err := chatCmd{Message: &dash}.message(strings.NewReader("two\nlines\n"))
	if err != nil || *got != "two\nlines" {
		t.Errorf("got %q, %v", *got, err)
	}
	if got, err := (chatCmd{}).message(nil); got != nil || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestEditorTakesACommandLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "it's a file")
	if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VISUAL", "")
	t.Setenv("EDITOR", "")
	if editor() != nil {
		t.Error("an editor from nothing")
	}
	t.Setenv("EDITOR", "sed -i s/one/two/")
	if err := editor()(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "two" {
		t.Errorf("got %q, %v", got, err)
	}
	t.Setenv("VISUAL", "false")
	if err := editor()(t.Context(), path); err == nil {
		t.Error("no error of an editor that fails")
	}
}
