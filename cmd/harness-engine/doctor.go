package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

type doctorCmd struct {
	Data         string `type:"path" help:"Folder of the engine's data; default: data, or data/dev where that has an engine."`
	Addr         string `default:"127.0.0.1:8080" help:"Where the engine shall listen."`
	WorkerBinary string `type:"path" help:"The harness-worker binary; default: beside this one."`
	NodeDir      string `type:"path" help:"Folder of the Node agents; default: worker/node beside this binary's folder."`
	OpenFGAURL   string `name:"openfga-url" help:"An OpenFGA server of yours; default: an embedded one."`
	JSON         bool   `name:"json" help:"Print the findings as JSON."`
}

// Help is shown by doctor --help.
func (doctorCmd) Help() string {
	return `Looks at this machine and leaves everything as it is. The flags mean what they mean for serve. The exit code is 1 when something
is missing that the engine, or its default harness, cannot be without.`
}

// doctorTimeout bounds all checks together.
const doctorTimeout = time.Minute

// verdict is what a check found.
type verdict string

// Verdicts.
const (
	verdictOK      verdict = "ok"
	verdictNote    verdict = "note"    // something that one can be without
	verdictMissing verdict = "missing" // something that one cannot
)

// finding is the result of one check.
type finding struct {
	Check  string  `json:"check"`
	Result verdict `json:"result"`
	Detail string  `json:"detail"`
	Help   string  `json:"help,omitempty"` // how to get what is missing
}

// check looks at one thing. It may find several.
type check func(ctx context.Context, c doctorCmd) []finding

// checks in the order of the report.
var checks = []check{
	checkWorker, checkNode, checkNodePackages, checkHarnesses, checkDataFolder, checkDisk, checkSocketPath,
	checkEngine, checkModelKeys, checkOpenFGA,
}

func (c doctorCmd) Run(ctx context.Context) error {
	findings := c.examine(ctx)
	var err error
	if c.JSON {
		err = reportJSON(os.Stdout, findings)
	} else {
		err = report(os.Stdout, findings)
	}
	if err != nil {
		return fmt.Errorf("failed to report: %w", err)
	}
	if !healthy(findings) {
		return exitCode(1)
	}
	return nil
}

// examine runs every check.
func (c doctorCmd) examine(ctx context.Context) []finding {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	c.Data = c.dataFolder(ctx)
	var findings []finding
	for _, look := range checks {
		findings = append(findings, look(ctx, c)...)
	}
	return findings
}

// dataFolder is the folder that is named, else the one that has an engine, else the default of serve.
func (c doctorCmd) dataFolder(ctx context.Context) string {
	if data, _, err := (callFlags{Data: c.Data}).folder(ctx); err == nil {
		return string(data)
	}
	data, err := absolute(cmp.Or(c.Data, defaultFolders[0]))
	if err != nil {
		return c.Data
	}
	return data
}

func healthy(findings []finding) bool {
	return !slices.ContainsFunc(findings, func(f finding) bool { return f.Result == verdictMissing })
}

func reportJSON(w io.Writer, findings []finding) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		OK       bool      `json:"ok"`
		Findings []finding `json:"findings"`
	}{healthy(findings), findings})
}

// report writes one line a finding, and below it how to get what is missing.
func report(w io.Writer, findings []finding) error {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%-8s %-24s %s\n", f.Result, f.Check, f.Detail)
		if f.Help != "" {
			fmt.Fprintf(&b, "%-8s %-24s -> %s\n", "", "", f.Help)
		}
	}
	if healthy(findings) {
		b.WriteString("Everything that is needed is there.\n")
	} else {
		b.WriteString("Something that is needed is missing.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
