package fakemodel

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// action is one thing that a script does.
type action int

const (
	doText action = iota // words, one delta each
	doThink
	doSlow
	doTool
	doHTTP
	doRecall
	doCut
	doHang
	doWait
	doStop
	doError
)

// Bounds of a marker's numbers, so that a typing error cannot keep a test machine busy.
const (
	maxWords  = 100_000
	maxDeltas = 10_000
	maxPause  = 60 * time.Second
	maxCuts   = 100
)

// step is one marker.
type step struct {
	do    action
	n     int           // words, deltas, HTTP status, or calls that are cut or hang; 0 is the default sentence, or all calls
	pause time.Duration // between deltas, before the next step, or Retry-After
	name  string        // of a tool, or the stop reason
	args  json.RawMessage
}

// script is what one user text asks for: a segment of steps for each model call of the turn, split by [[then]].
type script [][]step

// sentence is the answer of [[text]].
var sentence = []string{"Hello ", "from ", "the ", "fake ", "model."}

// markers are the names that the parser knows. Anything else in double brackets is ordinary text.
var markers = map[string]func(args string) (step, error){
	"text": func(a string) (step, error) {
		n, err := numbers(a, []int{0}, []int{maxWords})
		return step{do: doText, n: n[0]}, err
	},
	"think": func(a string) (step, error) { return step{do: doThink}, noArgs(a) },
	"slow": func(a string) (step, error) {
		n, err := numbers(a, []int{240, 250}, []int{maxDeltas, int(maxPause.Milliseconds())})
		return step{do: doSlow, n: n[0], pause: time.Duration(n[1]) * time.Millisecond}, err
	},
	"http": func(a string) (step, error) {
		n, err := numbers(a, []int{0, 0}, []int{599, 3600})
		if err == nil && n[0] < 400 {
			err = fmt.Errorf("status must be 400 to 599")
		}
		return step{do: doHTTP, n: n[0], pause: time.Duration(n[1]) * time.Second}, err
	},
	"wait": func(a string) (step, error) {
		n, err := numbers(a, []int{1000}, []int{int(maxPause.Milliseconds())})
		return step{do: doWait, pause: time.Duration(n[0]) * time.Millisecond}, err
	},
	"stop": func(a string) (step, error) {
		if _, ok := stopReasons[a]; !ok {
			return step{}, fmt.Errorf("unknown stop reason %q", a)
		}
		return step{do: doStop, name: a}, nil
	},
	"recall": func(a string) (step, error) { return step{do: doRecall}, noArgs(a) },
	"cut": func(a string) (step, error) {
		n, err := numbers(a, []int{0}, []int{maxCuts})
		return step{do: doCut, n: n[0]}, err
	},
	"hang": func(a string) (step, error) {
		n, err := numbers(a, []int{0}, []int{maxCuts})
		return step{do: doHang, n: n[0]}, err
	},
	"error": func(a string) (step, error) { return step{do: doError}, noArgs(a) },
}

// parse reads the markers of a user text. A text without any gives an empty script.
func parse(text string) (script, error) {
	s := script{nil}
	found := false
	for {
		_, rest, ok := strings.Cut(text, "[[")
		if !ok {
			break
		}
		name := rest[:len(rest)-len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz"))]
		text = rest
		args := rest[len(name):]
		if name == "tool" {
			st, after, err := parseTool(args)
			if err != nil {
				return nil, fmt.Errorf("marker [[tool]]: %w", err)
			}
			s[len(s)-1], text, found = append(s[len(s)-1], st), after, true
			continue
		}
		inner, after, closed := strings.Cut(args, "]]")
		if !closed {
			continue
		}
		if name == "then" && inner == "" {
			s, text, found = append(s, nil), after, true
			continue
		}
		build, known := markers[name]
		if !known || (inner != "" && inner[0] != ' ') {
			continue // not a marker of ours; what is inside may be
		}
		st, err := build(strings.TrimSpace(inner))
		if err != nil {
			return nil, fmt.Errorf("marker [[%s]]: %w", name, err)
		}
		s[len(s)-1], text, found = append(s[len(s)-1], st), after, true
	}
	if !found {
		return nil, nil
	}
	return s, nil
}

// parseTool reads ` NAME {json}]]`. The JSON may hold brackets and markers of its own.
func parseTool(args string) (step, string, error) {
	args = strings.TrimLeft(args, " ")
	end := strings.IndexAny(args, " ]")
	if end <= 0 {
		return step{}, "", fmt.Errorf("the name of the tool is missing")
	}
	st := step{do: doTool, name: args[:end], args: json.RawMessage(`{}`)}
	rest := strings.TrimLeft(args[end:], " ")
	if !strings.HasPrefix(rest, "]]") {
		dec := json.NewDecoder(strings.NewReader(rest))
		var object map[string]json.RawMessage
		if err := dec.Decode(&object); err != nil {
			return step{}, "", fmt.Errorf("arguments of %s are not a JSON object: %w", st.name, err)
		}
		n := dec.InputOffset()
		st.args = json.RawMessage(strings.TrimSpace(rest[:n]))
		rest = strings.TrimLeft(rest[n:], " ")
	}
	after, ok := strings.CutPrefix(rest, "]]")
	if !ok {
		return step{}, "", fmt.Errorf("]] is missing after %s: %w", st.name, io.ErrUnexpectedEOF)
	}
	return st, after, nil
}

// numbers reads up to len(defaults) numbers between 0 and their limit.
func numbers(args string, defaults, limits []int) ([]int, error) {
	out := append([]int(nil), defaults...)
	words := strings.Fields(args)
	if len(words) > len(out) {
		return out, fmt.Errorf("at most %d numbers", len(out))
	}
	for i, w := range words {
		n, err := strconv.Atoi(w)
		if err != nil || n < 0 || n > limits[i] {
			return out, fmt.Errorf("%q must be a number from 0 to %d", w, limits[i])
		}
		out[i] = n
	}
	return out, nil
}

func noArgs(args string) error {
	if args != "" {
		return fmt.Errorf("takes no arguments")
	}
	return nil
}
