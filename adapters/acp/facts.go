package acp

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// facts are what the driver learns beside the events: a small, bounded set of named values for the engine only.
type facts struct {
	values map[string]string
	counts map[string]map[string]int // fact to value to how often
}

// maxCounted bounds the different values of one count.
const maxCounted = 16

func newFacts() *facts {
	return &facts{values: map[string]string{}, counts: map[string]map[string]int{}}
}

func (f *facts) set(key, value string) { f.values[key] = label(value, maxFact) }

// count notes that a value was seen; beyond maxCounted different ones it notes "others".
func (f *facts) count(key, value string) {
	seen := f.counts[key]
	if seen == nil {
		seen = map[string]int{}
		f.counts[key] = seen
	}
	if _, known := seen[value]; !known && len(seen) >= maxCounted {
		value = "others"
	}
	seen[value]++
}

// take gives the facts noted so far.
func (f *facts) take() map[string]string {
	out := maps.Clone(f.values)
	for key, seen := range f.counts {
		var parts []string
		for _, value := range slices.Sorted(maps.Keys(seen)) {
			parts = append(parts, fmt.Sprintf("%s=%d", value, seen[value]))
		}
		out[key] = label(strings.Join(parts, ","), maxFact)
	}
	return out
}
