package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPage: what docs/clients.md shows is what is run.
func TestPage(t *testing.T) {
	if err := checkPage("."); err != nil {
		t.Fatal(err)
	}
}

// TestPageNotices: a page that shows something else, something more or something less is refused.
func TestPageNotices(t *testing.T) {
	raw, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	first := clientPrograms[0].file
	for name, change := range map[string]func(string) string{
		"a changed line": func(s string) string { return strings.Replace(s, "retryAttempts: 0, //", "retryAttempts: 5, //", 1) },
		"a program less": func(s string) string { return strings.Replace(s, markBegin+first+markEnd, "", 1) },
		"a program twice": func(s string) string {
			return s + "\n" + markBegin + first + markEnd + "\n" + fence + "\n" + fence + "\n"
		},
		"a program more": func(s string) string { return s + "\n" + markBegin + "other.mjs" + markEnd + "\n" },
		"an open block":  func(s string) string { return s[:strings.LastIndex(s, fence)] },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "docs"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "docs", "clients.md"), []byte(change(text)), 0o644); err != nil {
				t.Fatal(err)
			}
			here := filepath.Join(dir, "e2e", "conformance")
			if err := os.MkdirAll(here, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(filepath.Join(here, "clients"), os.DirFS("clients")); err != nil {
				t.Fatal(err)
			}
			if err := checkPage(here); err == nil {
				t.Error("the page was taken")
			}
		})
	}
}
