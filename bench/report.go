package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is the result file. Every result was measured in rounds beside its floor, in turn, in the same run.
type Report struct {
	Schema    int       `json:"schema"` // 1
	StartedAt time.Time `json:"startedAt"`
	Commit    string    `json:"commit"` // of the source tree; "-dirty" where it was changed
	Machine   Machine   `json:"machine"`
	Rounds    int       `json:"rounds"`
	Results   []Result  `json:"results"`
}

// Machine is what the figures depend on.
type Machine struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel,omitempty"`
	Go     string `json:"go"`
}

// Result is one figure beside its floor.
type Result struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit"`
	Note     string  `json:"note"`
	Measured Summary `json:"measured"`
	Floor    Summary `json:"floor"`
	// Ratio is measured / floor of each round: the pairs were measured one right after the other.
	Ratio Summary `json:"ratio"`
	// Goal is what the ratio's median is to reach, or the measured median where the goal has a unit.
	Goal   string `json:"goal,omitempty"`
	Met    bool   `json:"met,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// Summary is the median of the rounds with their spread.
type Summary struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Rounds []float64 `json:"rounds"`
}

// pairs collects the rounds of one figure.
type pairs struct {
	name, unit, note string
	detail           string    // of the last round
	goal             goal      // of the ratio; of the measured one where there is no floor
	least            goal      // of the measured one, whatever the floor
	measured, floor  []float64 // floor is empty where a figure stands by itself
}

func (p *pairs) add(measured, floor float64) {
	p.measured = append(p.measured, measured)
	p.floor = append(p.floor, floor)
}

// alone adds a round of a figure that stands by itself.
func (p *pairs) alone(measured float64) { p.measured = append(p.measured, measured) }

func (p *pairs) result() Result {
	ratio := make([]float64, len(p.floor))
	for i := range ratio {
		if p.floor[i] > 0 {
			ratio[i] = p.measured[i] / p.floor[i]
		}
	}
	r := Result{Name: p.name, Unit: p.unit, Note: p.note, Measured: summarise(p.measured), Floor: summarise(p.floor), Ratio: summarise(ratio), Detail: p.detail}
	switch {
	case p.least.set:
		r.Goal, r.Met = p.least.String()+" "+p.unit, p.least.met(r.Measured.Median)
	case p.goal.set && len(p.floor) == 0:
		r.Goal, r.Met = p.goal.String()+" "+p.unit, p.goal.met(r.Measured.Median)
	case p.goal.set:
		r.Goal, r.Met = p.goal.String(), p.goal.met(r.Ratio.Median)
	}
	return r
}

// goal is what a figure is to reach. The zero value asks for nothing.
type goal struct {
	set, most bool
	value     float64
}

func atLeast(v float64) goal { return goal{set: true, value: v} }
func atMost(v float64) goal  { return goal{set: true, most: true, value: v} }

func (g goal) met(v float64) bool {
	if g.most {
		return v <= g.value
	}
	return v >= g.value
}

func (g goal) String() string {
	if g.most {
		return fmt.Sprintf("<= %g", g.value)
	}
	return fmt.Sprintf(">= %g", g.value)
}

func summarise(rounds []float64) Summary {
	if len(rounds) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(rounds))
	mid := sorted[len(sorted)/2]
	if len(sorted)%2 == 0 {
		mid = (sorted[len(sorted)/2-1] + mid) / 2
	}
	return Summary{Median: mid, Min: sorted[0], Max: sorted[len(sorted)-1], Rounds: rounds}
}

// quantile of durations, in milliseconds; q is 0 to 1. It sorts its argument.
func quantile(d []time.Duration, q float64) float64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return float64(d[min(int(q*float64(len(d))), len(d)-1)]) / float64(time.Millisecond)
}

func newReport(rounds int) Report {
	return Report{Schema: 1, StartedAt: time.Now().UTC().Truncate(time.Second), Commit: commit(), Rounds: rounds, Machine: Machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Kernel: kernel(), Go: runtime.Version(),
	}}
}

func kernel() string {
	raw, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// table prints the results for people.
func (r Report) table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s/%s, %d CPUs, %s, commit %s; medians of %d interleaved pairs (lowest to highest)\n\n",
		r.Machine.OS, r.Machine.Arch, r.Machine.CPUs, r.Machine.Go, r.Commit, r.Rounds)
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(columns, "figure\tunit\tmeasured\tfloor or peer\tratio\tgoal") // Flush tells
	for _, x := range r.Results {
		_, _ = fmt.Fprintf(columns, "%s\t%s\t%s\t%s\t%s\t%s\n", x.Name, x.Unit, x.Measured, x.Floor, x.Ratio, x.verdict())
	}
	if err := columns.Flush(); err != nil {
		return fmt.Errorf("failed to lay out the table: %w", err)
	}
	b.WriteByte('\n')
	for _, x := range r.Results {
		if x.Detail != "" {
			fmt.Fprintf(&b, "  %s: %s\n", x.Name, x.Detail)
		}
	}
	told := map[string]bool{}
	for _, x := range r.Results {
		if !told[x.Note] {
			told[x.Note] = true
			fmt.Fprintf(&b, "  %s: %s\n", x.Name, x.Note)
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("failed to print the table: %w", err)
	}
	return nil
}

func (r Result) verdict() string {
	switch {
	case r.Goal == "":
		return ""
	case r.Met:
		return r.Goal + " met"
	}
	return r.Goal + " MISSED"
}

func (s Summary) String() string {
	if len(s.Rounds) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.4g (%.4g to %.4g)", s.Median, s.Min, s.Max)
}

// write puts the report into a file of its own in the folder and returns its path.
func (r Report) write(folder string) (string, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("failed to make folder %s: %w", folder, err)
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", fmt.Errorf("failed to encode the report: %w", err)
	}
	path := filepath.Join(folder, "bench-"+r.StartedAt.Format("20060102T150405Z")+".json")
	if err := os.WriteFile(path, append(raw, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("failed to write the report: %w", err)
	}
	return path, nil
}
