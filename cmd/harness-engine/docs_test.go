package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// TestThePageOfBuildersSaysWhatHarnessesDo: the table of docs/builders.md has the capabilities that some harness offers, each with
// the level that its descriptor says.
func TestThePageOfBuildersSaysWhatHarnessesDo(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "builders.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := adapters("")
	slices.SortFunc(all, func(a, b harness.Adapter) int { return strings.Compare(a.Descriptor().ID, b.Descriptor().ID) })
	var want []string
	for _, key := range harness.Capabilities {
		row, offered := fmt.Sprintf("`%s` |", key), false
		for _, a := range all {
			level := a.Descriptor().Capabilities[key]
			if level == "" {
				level = harness.Unsupported
			}
			offered = offered || level != harness.Unsupported
			row += fmt.Sprintf(" %s |", strings.ToLower(strings.ReplaceAll(string(level), string(harness.Unsupported), "-")))
		}
		if offered {
			want = append(want, row)
		}
	}
	_, section, _ := strings.Cut(string(page), "\n### What the harnesses do\n")
	section, _, _ = strings.Cut(section, "\n#")
	var got []string
	for line := range strings.Lines(section) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); strings.HasPrefix(line, "| `") && len(cells) == 2+len(all) {
			got = append(got, strings.TrimPrefix(cells[0], "| ")+" | "+strings.Join(cells[2:], " | "))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page has\n%s\nand the descriptors say\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
