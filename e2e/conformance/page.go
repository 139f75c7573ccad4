package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pageFile is the page whose programs are run, from this package's folder.
const pageFile = "../../docs/clients.md"

// A program stands in the page behind a line that names its file, as a fenced block.
const (
	markBegin = "<!-- clients/"
	markEnd   = " -->"
	fence     = "```"
)

// checkPage compares every program of the page with the file that is run, and fails where one is missing on either side.
func checkPage(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, pageFile))
	if err != nil {
		return err
	}
	_, err = page(dir, string(text), func(file, shown, run string) (string, error) {
		if shown != run {
			return "", fmt.Errorf("docs/clients.md shows another %s than the one that is run: go run ./e2e/conformance -write-page", file)
		}
		return shown, nil
	})
	return err
}

// writePage puts the files into the page.
func writePage(dir string) error {
	file := filepath.Join(dir, pageFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	filled, err := page(dir, string(text), func(_, _, run string) (string, error) { return run, nil })
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(filled), 0o644)
}

// page replaces each program of the text by what put makes of what is shown and what the file has.
func page(dir, text string, put func(file, shown, run string) (string, error)) (string, error) {
	var missing []string
	for _, p := range clientPrograms {
		missing = append(missing, p.file)
	}
	var out strings.Builder
	lines := strings.SplitAfter(text, "\n")
	for i := 0; i < len(lines); i++ {
		out.WriteString(lines[i])
		file, ok := strings.CutPrefix(strings.TrimSpace(lines[i]), markBegin)
		if !ok {
			continue
		}
		file = strings.TrimSuffix(file, markEnd)
		at := slices.Index(missing, file)
		if at < 0 {
			return "", fmt.Errorf("docs/clients.md shows %s, which is not run, or shows it twice", file)
		}
		missing = slices.Delete(missing, at, at+1)
		if i++; i >= len(lines) || !strings.HasPrefix(lines[i], fence) {
			return "", fmt.Errorf("docs/clients.md has no block for %s", file)
		}
		out.WriteString(lines[i])
		begin := i + 1
		length := slices.IndexFunc(lines[begin:], func(l string) bool { return strings.TrimSpace(l) == fence })
		if length < 0 {
			return "", fmt.Errorf("docs/clients.md does not end the block of %s", file)
		}
		run, err := os.ReadFile(filepath.Join(dir, "clients", filepath.FromSlash(file)))
		if err != nil {
			return "", err
		}
		block, err := put(file, strings.Join(lines[begin:begin+length], ""), string(run))
		if err != nil {
			return "", err
		}
		out.WriteString(block)
		i = begin + length
		out.WriteString(lines[i])
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("docs/clients.md does not show %s", strings.Join(missing, ", "))
	}
	return out.String(), nil
}
